"""arq, unmodified: jobs with results, while the server is killed and started again."""

import asyncio

import arq
import arq.connections

import jobs

SETTINGS = arq.connections.RedisSettings(
    port=jobs.PORT, conn_retries=100, conn_retry_delay=0.1, retry_on_timeout=True)


async def job(_context, number):
    jobs.note(number)
    return number * 2


class WorkerSettings:
    functions = [job]
    redis_settings = SETTINGS
    max_jobs = jobs.AT_A_TIME
    poll_delay = 0.05
    # A worker that ends between taking a job and beginning it, since the server is killed then, keeps it
    # from others for ten seconds more than this.
    job_timeout = 5


def add(number):
    """Adds the job of a number; one that is there is not added again."""

    async def enqueue():
        pool = await arq.create_pool(SETTINGS)
        await pool.enqueue_job("job", number, _job_id=f"job-{number}")
        await pool.aclose()

    asyncio.run(enqueue())


def main():
    jobs.do_all(add, [jobs.Worker("arq", "with_arq.WorkerSettings")])


if __name__ == "__main__":
    main()
