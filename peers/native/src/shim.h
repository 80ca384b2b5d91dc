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
    const char *(*error)(int number);
    const char *(*version)(void);
};

#endif
