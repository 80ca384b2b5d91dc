# frozen_string_literal: true

# The jobs, which the worker and the program that adds them load. The server's port, and the file in
# which is noted what was done, are in the environment.

require 'sidekiq'

REDIS = { url: "redis://127.0.0.1:#{ENV.fetch('SERVER_PORT')}", timeout: 30 }.freeze

Sidekiq.configure_client { |config| config.redis = REDIS }
Sidekiq.configure_server do |config|
  config.redis = REDIS
  # Jobs whose time has come are looked for about twice a second, not after ten seconds at first.
  (config.respond_to?(:[]=) ? config : config.options)[:poll_interval_average] = 0.5
end

class Plain
  include Sidekiq::Worker

  def perform(number)
    # A worker that is interrupted has done something before.
    sleep 0.002
    File.write(ENV.fetch('DONE'), "#{number}\n", mode: 'a')
  end
end

# Fails the first time.
class Fails < Plain
  def perform(number)
    raise 'for the first time' if Sidekiq.redis { |client| client.incr("tries:#{number}") } == 1

    super
  end
end
