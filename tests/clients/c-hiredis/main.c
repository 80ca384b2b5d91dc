// hiredis, unmodified: what an application does. Argument: port. It speaks RESP2: versions before 1.0,
// which distributions have, know no other.
// The first wrong answer ends it with an error.
// It prints RESTART when the server may be killed, and goes on when it reads a line.

#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIPELINED = 10000, MESSAGES = 100, LARGE = 1 << 20 };

static int port;

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);   \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

static redisContext *try_connect(void) {
    redisContext *context = redisConnect("127.0.0.1", port);
    if (context != NULL && context->err == 0)
        return context;
    redisFree(context);
    return NULL;
}

static redisContext *must_connect(void) {
    redisContext *context = try_connect();
    CHECK(context != NULL);
    return context;
}

// Sends a command, and returns its reply, which is none of those that tell of a broken connection.
static redisReply *ask(redisContext *context, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(context, format, arguments);
    va_end(arguments);
    CHECK(reply != NULL);
    return reply;
}

static int is_text(const redisReply *reply, const char *text) {
    return (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS) &&
           reply->len == strlen(text) && memcmp(reply->str, text, reply->len) == 0;
}

static int is_nil(const redisReply *reply) { return reply->type == REDIS_REPLY_NIL; }

static int is_number(const redisReply *reply, long long number) {
    return reply->type == REDIS_REPLY_INTEGER && reply->integer == number;
}

// Sends a command, and checks a condition of its `reply`.
#define EXPECT(condition, context, ...)                  \
    do {                                                 \
        redisReply *reply = ask(context, __VA_ARGS__);   \
        CHECK(condition);                                \
        freeReplyObject(reply);                          \
    } while (0)

static void cache(redisContext *context) {
    EXPECT(is_nil(reply), context, "GET page");
    EXPECT(is_text(reply, "OK"), context, "SET page %s EX 100", "some text");
    EXPECT(is_text(reply, "some text"), context, "GET page");
    EXPECT(reply->integer > 90, context, "TTL page");
    EXPECT(is_nil(reply), context, "SET page other NX");
    EXPECT(reply->elements == 2 && is_nil(reply->element[1]), context, "MGET page none");
    EXPECT(is_number(reply, 2), context, "HSET user name Ada born 1815");
    EXPECT(reply->elements == 4, context, "HGETALL user");
    EXPECT(is_number(reply, 2), context, "ZADD scores 1.5 a 0.5 b");
    EXPECT(is_number(reply, 1), context, "ZRANK scores a");
    EXPECT(reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "not an integer"), context,
           "INCR page");
    EXPECT(is_number(reply, 3), context, "DEL page user scores");
}

static void watched_counter(redisContext *context) {
    redisContext *other = must_connect();
    for (int number = 0; number < 50; number++) {
        EXPECT(is_text(reply, "OK"), context, "WATCH counter");
        // Every other time somebody comes between.
        int is_beaten = number % 2;
        if (is_beaten)
            EXPECT(is_number(reply, number + 1), other, "INCR counter");
        EXPECT(is_text(reply, "OK"), context, "MULTI");
        EXPECT(is_text(reply, "QUEUED"), context, "INCR counter");
        EXPECT(is_beaten ? reply->elements == 0 : reply->elements == 1, context, "EXEC");
        EXPECT(is_number(reply, number + 1), context, "INCRBY counter 0");
    }
    redisFree(other);
}

static void bulk_load(redisContext *context) {
    for (int number = 0; number < PIPELINED; number++)
        CHECK(redisAppendCommand(context, "SET bulk:%d %d", number, number) == REDIS_OK);
    for (int number = 0; number < PIPELINED; number++) {
        void *reply;
        CHECK(redisGetReply(context, &reply) == REDIS_OK);
        CHECK(is_text(reply, "OK"));
        freeReplyObject(reply);
    }
    EXPECT(is_text(reply, "777"), context, "GET bulk:777");
    EXPECT(reply->integer >= PIPELINED, context, "DBSIZE");
}

static void messages(redisContext *context) {
    redisContext *subscriber = must_connect();
    EXPECT(reply->elements == 3, subscriber, "SUBSCRIBE news");
    for (int number = 0; number < MESSAGES; number++)
        EXPECT(is_number(reply, 1), context, "PUBLISH news %d", number);
    for (int number = 0; number < MESSAGES; number++) {
        void *got;
        CHECK(redisGetReply(subscriber, &got) == REDIS_OK);
        redisReply *message = got;
        CHECK(message->elements == 3 && is_text(message->element[0], "message"));
        CHECK(atoi(message->element[2]->str) == number);
        freeReplyObject(message);
    }
    redisFree(subscriber);
}

static void queue(redisContext *context) {
    redisContext *consumer = must_connect();
    for (int number = 0; number < MESSAGES; number++) {
        // The consumer waits before there is anything.
        CHECK(redisAppendCommand(consumer, "BRPOP jobs 10") == REDIS_OK);
        int is_sent = 0;
        while (!is_sent)
            CHECK(redisBufferWrite(consumer, &is_sent) == REDIS_OK);
        EXPECT(reply->type == REDIS_REPLY_INTEGER, context, "LPUSH jobs %d", number);
        void *got;
        CHECK(redisGetReply(consumer, &got) == REDIS_OK);
        redisReply *job = got;
        CHECK(job->elements == 2 && atoi(job->element[1]->str) == number);
        freeReplyObject(job);
    }
    redisFree(consumer);
}

static void stream_group(redisContext *context) {
    EXPECT(is_text(reply, "OK"), context, "XGROUP CREATE log readers $ MKSTREAM");
    for (int number = 0; number < MESSAGES; number++)
        EXPECT(reply->type == REDIS_REPLY_STRING, context, "XADD log * n %d", number);
    for (int number = 0; number < MESSAGES; number++) {
        redisReply *reply = ask(context, "XREADGROUP GROUP readers one COUNT 1 STREAMS log >");
        CHECK(reply->elements == 1);
        redisReply *entry = reply->element[0]->element[1]->element[0];
        CHECK(atoi(entry->element[1]->element[1]->str) == number);
        EXPECT(is_number(reply, 1), context, "XACK log readers %s", entry->element[0]->str);
        freeReplyObject(reply);
    }
    EXPECT(is_number(reply->element[0], 0), context, "XPENDING log readers");
}

static void script(redisContext *context) {
    const char *text = "local now = redis.call('INCRBY', KEYS[1], ARGV[1])\n"
                       "if now > tonumber(ARGV[2]) then\n"
                       "  redis.call('DECRBY', KEYS[1], ARGV[1])\n"
                       "  return -1\n"
                       "end\n"
                       "return now";
    redisReply *loaded = ask(context, "SCRIPT LOAD %s", text);
    CHECK(loaded->type == REDIS_REPLY_STRING && loaded->len == 40);
    EXPECT(is_number(reply, 3), context, "EVALSHA %s 1 limit 3 5", loaded->str);
    EXPECT(is_number(reply, -1), context, "EVALSHA %s 1 limit 3 5", loaded->str);
    EXPECT(is_text(reply, "OK"), context, "SCRIPT FLUSH");
    EXPECT(reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT ", 9) == 0, context,
           "EVALSHA %s 1 limit 2 5", loaded->str);
    EXPECT(is_number(reply, 5), context, "EVAL %s 1 limit 2 5", text);
    freeReplyObject(loaded);
}

static void large_values(redisContext *context) {
    char *large = malloc(LARGE);
    CHECK(large != NULL);
    for (int place = 0; place < LARGE; place++)
        large[place] = (char)(place * 31 % 251);
    EXPECT(is_text(reply, "OK"), context, "SET large %b", large, (size_t)LARGE);
    EXPECT(reply->len == LARGE && memcmp(reply->str, large, LARGE) == 0, context, "GET large");
    EXPECT(is_number(reply, 1), context, "DEL large");
    free(large);
}

static void restart(redisContext *context) {
    redisReply *reply = ask(context, "INCR kept");
    long long acknowledged = reply->integer;
    freeReplyObject(reply);
    printf("RESTART\n");
    fflush(stdout);
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int after = 0;
    while (after < 20) {
        int restarted = poll(&input, 1, 0) == 1;
        reply = context == NULL ? NULL : redisCommand(context, "INCR kept");
        if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
            // The connection is gone, or the server still opens its store.
            freeReplyObject(reply);
            redisFree(context);
            poll(NULL, 0, 20);
            context = try_connect();
            continue;
        }
        CHECK(reply->integer > acknowledged);
        acknowledged = reply->integer;
        freeReplyObject(reply);
        after += restarted;
    }
    redisFree(context);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    port = atoi(arguments[1]);
    redisContext *context = must_connect();
    EXPECT(is_text(reply, "OK"), context, "FLUSHALL");
    cache(context);
    watched_counter(context);
    bulk_load(context);
    messages(context);
    queue(context);
    stream_group(context);
    script(context);
    large_values(context);
    restart(context);
    return 0;
}
