# frozen_string_literal: true

# Sidekiq, unmodified: jobs for now, for later, and such that fail at first, while the server is killed
# and started again. Argument: port.
# It prints RESTART when the server may be killed, and goes on when it reads a line.

require 'tmpdir'

FOLDER = Dir.mktmpdir('pando-sidekiq-')
ENV['SERVER_PORT'] = ARGV.fetch(0)
ENV['DONE'] = "#{FOLDER}/done"
LOG = "#{FOLDER}/log"

require_relative 'jobs'
require 'sidekiq/api'

# Number of jobs that are added while no worker runs, and of all jobs.
ALONE = 200
JOBS = 400
# Number of jobs that the worker does at a time.
AT_A_TIME = 2

# Calls the block until it does not fail: what it asks for may be done twice.
def insist
  tries = 0
  begin
    yield
  rescue StandardError
    raise if (tries += 1) == 600

    sleep 0.05
    retry
  end
end

# Adds a job, and returns once that is acknowledged.
def add(number)
  insist do
    case number % 4
    when 0 then Plain.perform_in(0.5 + rand, number)
    when 1 then Fails.perform_async(number)
    else Plain.perform_async(number)
    end
  end
end

# Adds jobs, in the middle of which the server is killed.
def add_while_killed(numbers)
  restarted = nil
  numbers.each do |number|
    if number == (numbers.begin + numbers.end) / 2
      puts 'RESTART'
      $stdout.flush
      restarted = Thread.new { $stdin.gets }
    end
    add(number)
  end
  raise 'the other side is gone' unless restarted.value
end

def done
  File.readlines(ENV.fetch('DONE')).map(&:to_i).tally
end

def left
  [Sidekiq::Queue.new, Sidekiq::ScheduledSet.new, Sidekiq::RetrySet.new].sum(&:size)
end

# Waits until all of so many jobs are done, but for those that may be lost and are nowhere any more.
def reach(count, may_lose: 0)
  deadline = Time.now + 60
  until done.size >= count - may_lose && insist { left }.zero?
    # Nobody waits for the usual quarter of a minute.
    insist { Sidekiq::RetrySet.new.retry_all }
    return if Time.now > deadline

    sleep 0.05
  end
end

def check(count, may_lose: 0, again: 0)
  reach(count, may_lose: may_lose)
  counts = done
  lost = (0...count).reject { |number| counts.key?(number) }
  twice = counts.select { |_, times| times > 1 }
  return if lost.size <= may_lose && twice.size <= again && left.zero?

  raise "lost: #{lost}, done again: #{twice}, left: #{left}\n#{File.read(LOG)[-3000..]}"
end

File.write(ENV.fetch('DONE'), '')
worker = nil
begin
  # Nobody fetches: whatever was acknowledged is there, and only the job that was being added when the
  # server was killed can be there twice.
  add_while_killed(0...ALONE)
  command = ['sidekiq', '--require', "#{__dir__}/jobs.rb", '--concurrency', AT_A_TIME.to_s]
  worker = spawn(*command, chdir: FOLDER, %i[out err] => [LOG, 'a'])
  check(ALONE, again: 1)
  raise 'the other jobs did not fail' unless Sidekiq.redis { |client| client.get('tries:1') } == '2'

  # While they are fetched: BRPOP takes a job for good, so that what was on its way to a worker is
  # lost, be the server ours or Redis's. So is the one on its way from the jobs of later to the queue.
  add_while_killed(ALONE...JOBS)
  check(JOBS, may_lose: AT_A_TIME + 1, again: 2)
ensure
  if worker
    Process.kill('KILL', worker)
    Process.wait(worker)
  end
  system('rm', '-r', FOLDER)
end
