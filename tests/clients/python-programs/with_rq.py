"""RQ, unmodified: jobs with results, while the server is killed and started again."""

import redis
import rq

import jobs

connection = redis.Redis(port=jobs.PORT)


def job(number):
    jobs.note(number)
    return number * 2


def main():
    url = f"redis://127.0.0.1:{jobs.PORT}"
    queue = rq.Queue("jobs", connection=connection)
    workers = [
        jobs.Worker("rq", "worker", "--url", url, "--worker-class", "rq.SimpleWorker", "jobs")
        for _ in range(jobs.AT_A_TIME)]

    def add(number):
        # A job that was added before its acknowledgement was lost is not added again.
        if rq.job.Job.exists(f"job-{number}", connection):
            return
        queue.enqueue("with_rq.job", number, job_id=f"job-{number}", result_ttl=600)

    # A worker that loses the server ends, and the job that it had started has failed.
    jobs.do_all(add, workers, may_lose=jobs.AT_A_TIME)
    last = rq.job.Job.fetch(f"job-{jobs.JOBS - 1}", connection)
    assert last.return_value() == 2 * (jobs.JOBS - 1), last.get_status()
    assert queue.count == 0


if __name__ == "__main__":
    main()
