/* What peers asks of an engine with a C interface: one table of functions each. Results are 0,
 * PEERS_NOT_FOUND, or the engine's own error number. */
#ifndef PEERS_SHIM_H
#define PEERS_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define PEERS_NOT_FOUND 0x40000000

struct peers_slice {
    const void *data;
    size_t bytes;
};

struct peers_config {
    const char *directory;
    uint64_t cache_bytes;
    uint32_t direct;  /* past the page cache */
    uint32_t durable; /* a commit returns when it is on disk */
    uint32_t threads; /* at most this many workers at once */
};

/* Called with an entry; the bytes are valid during the call only. */
typedef void (*peers_read)(void *context, struct peers_slice key, struct peers_slice value);
/* Called with the old value, or a null pointer; answers the new one, which stays valid until the
 * engine's function returns. May be called again when a transaction has to be repeated. */
typedef struct peers_slice (*peers_change)(void *context, struct peers_slice old);

/* Called with the position of a key that a transaction reads, and its value, or a null pointer.
 * May be called again when the transaction has to be repeated. */
typedef void (*peers_read_at)(void *context, size_t at, struct peers_slice value);

/* Keys that are read, then entries that are put. */
struct peers_transaction {
    const struct peers_slice *reads;
    size_t read_count;
    const struct peers_slice *keys;
    const struct peers_slice *values;
    size_t put_count;
};

struct peers_engine {
    int (*open)(const struct peers_config *config, void **store);
    int (*close)(void *store);
    /* Makes durable what was written, and writes a checkpoint. */
    int (*checkpoint)(void *store);
    /* Makes durable what was written. */
    int (*sync)(void *store);
    int (*begin)(void *store, void **worker);
    int (*end)(void *worker);
    int (*put)(void *worker, const struct peers_slice *keys, const struct peers_slice *values,
               size_t count);
    int (*get)(void *worker, struct peers_slice key, peers_read read, void *context);
    int (*scan)(void *worker, struct peers_slice from, size_t limit, peers_read read,
                void *context, size_t *count);
    int (*update)(void *worker, struct peers_slice key, peers_change change, void *context);
    /* At the strongest isolation that there is; `repeats` is how often it was repeated. */
    int (*transact)(void *worker, const struct peers_transaction *transaction, peers_read_at read,
                    void *context, uint64_t *repeats);
    const char *(*error)(int number);
    const char *(*version)(void);
};

#endif
