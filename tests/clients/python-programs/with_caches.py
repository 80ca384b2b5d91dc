"""limits, django-redis and Flask-Caching, unmodified: limits hold beside many callers and after a restart,
what was cached is there, and a lock belongs to one."""

import concurrent.futures
import time

import django.conf
import flask
import flask_caching
import limits

import jobs

URL = f"redis://127.0.0.1:{jobs.PORT}"


def check_limits():
    storage = limits.storage.storage_from_string(f"{URL}/0")
    item = limits.parse("50 per hour")
    for strategy in [
            limits.strategies.FixedWindowRateLimiter, limits.strategies.MovingWindowRateLimiter,
            limits.strategies.SlidingWindowCounterRateLimiter]:
        limiter = strategy(storage)
        name = strategy.__name__
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            allowed = list(pool.map(lambda _: limiter.hit(item, name), range(200)))
        assert sum(allowed) == 50, (name, sum(allowed))
    return storage, item


def check_django():
    django.conf.settings.configure(CACHES={"default": {
        "BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"{URL}/1"}})
    from django.core.cache import cache
    cache.set("page", {"text": "value" * 100}, timeout=100)
    assert cache.get("page") == {"text": "value" * 100}
    assert 90 < cache.ttl("page") <= 100
    assert cache.add("page", 1) is False
    cache.set("count", 1)
    assert cache.incr("count", 41) == 42
    cache.set_many({f"many:{number}": number for number in range(1000)})
    assert len(cache.get_many([f"many:{number}" for number in range(1000)])) == 1000
    assert len(list(cache.iter_keys("many:*"))) == 1000
    assert cache.delete_pattern("many:*") == 1000
    held = []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        def enter(number):
            with cache.lock("lock", timeout=60):
                held.append(number)
                assert len(held) == 1, held
                time.sleep(0.01)
                held.clear()
        list(pool.map(enter, range(12)))
    return cache


def check_flask():
    app = flask.Flask("app")
    cache = flask_caching.Cache(app, config={
        "CACHE_TYPE": "RedisCache", "CACHE_REDIS_URL": f"{URL}/2"})
    calls = []

    @cache.memoize(timeout=100)
    def square(number):
        calls.append(number)
        return number * number

    with app.app_context():
        assert [square(number) for number in [3, 4, 3, 4]] == [9, 16, 9, 16]
        assert calls == [3, 4]
        cache.delete_memoized(square, 3)
        assert square(3) == 9 and calls == [3, 4, 3]


def main():
    storage, item = check_limits()
    cache = check_django()
    check_flask()
    jobs.restart()
    limiter = limits.strategies.FixedWindowRateLimiter(storage)
    assert jobs.insist(lambda: limiter.hit(item, "FixedWindowRateLimiter")) is False
    assert jobs.insist(lambda: cache.get("page")) == {"text": "value" * 100}


if __name__ == "__main__":
    main()
