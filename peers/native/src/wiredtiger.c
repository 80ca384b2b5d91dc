/* WiredTiger: one B-tree; a session and a cursor for each worker. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <wiredtiger.h>

#include "shim.h"

#define URI "table:bench"
#define CONFIG_BYTES 512

struct store {
    WT_CONNECTION *connection;
};

struct worker {
    WT_SESSION *session;
    WT_CURSOR *cursor;
};

static int wt_close(void *opened) {
    struct store *store = opened;
    int code = store->connection->close(store->connection, NULL);
    free(store);
    return code;
}

static int create(WT_CONNECTION *connection, const struct peers_config *config) {
    WT_SESSION *session;
    char options[CONFIG_BYTES];
    int code = connection->open_session(connection, NULL, NULL, &session);
    if (code != 0) return code;
    /* As its manual says for random reads of data that does not fit into the cache. */
    snprintf(options, sizeof options, "key_format=u,value_format=u%s",
             config->direct ? ",leaf_page_max=4KB" : "");
    code = session->create(session, URI, options);
    int also = session->close(session, NULL);
    return code != 0 ? code : also;
}

static int wt_open(const struct peers_config *config, void **opened) {
    struct store *store = calloc(1, sizeof *store);
    char options[CONFIG_BYTES];
    if (store == NULL) return ENOMEM;
    snprintf(options, sizeof options,
             "create,cache_size=%lluB,session_max=%u,eviction=(threads_max=4),statistics=(none),"
             "log=(enabled=true,file_max=64MB),transaction_sync=(enabled=%s,method=fsync)%s",
             (unsigned long long)config->cache_bytes, config->threads + 100,
             config->durable ? "true" : "false", config->direct ? ",direct_io=[data]" : "");
    int code = wiredtiger_open(config->directory, NULL, options, &store->connection);
    if (code != 0) {
        free(store);
        return code;
    }
    if ((code = create(store->connection, config)) != 0) {
        wt_close(store);
        return code;
    }
    *opened = store;
    return 0;
}

static int wt_sync(void *opened) {
    struct store *store = opened;
    WT_SESSION *session;
    int code = store->connection->open_session(store->connection, NULL, NULL, &session);
    if (code != 0) return code;
    code = session->log_flush(session, "sync=on");
    int also = session->close(session, NULL);
    return code != 0 ? code : also;
}

static int wt_checkpoint(void *opened) {
    struct store *store = opened;
    WT_SESSION *session;
    int code = store->connection->open_session(store->connection, NULL, NULL, &session);
    if (code != 0) return code;
    code = session->checkpoint(session, NULL);
    int also = session->close(session, NULL);
    return code != 0 ? code : also;
}

static int wt_end(void *begun) {
    struct worker *worker = begun;
    int code = worker->session->close(worker->session, NULL);
    free(worker);
    return code;
}

static int wt_begin(void *opened, void **begun) {
    struct store *store = opened;
    struct worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) return ENOMEM;
    int code = store->connection->open_session(store->connection, NULL, NULL, &worker->session);
    if (code != 0) {
        free(worker);
        return code;
    }
    code = worker->session->open_cursor(worker->session, URI, NULL, NULL, &worker->cursor);
    if (code != 0) {
        wt_end(worker);
        return code;
    }
    *begun = worker;
    return 0;
}

static WT_ITEM item(struct peers_slice slice) {
    WT_ITEM out;
    memset(&out, 0, sizeof out);
    out.data = slice.data;
    out.size = slice.bytes;
    return out;
}

static int put_all(WT_CURSOR *cursor, const struct peers_slice *keys,
                   const struct peers_slice *values, size_t count) {
    for (size_t at = 0; at < count; at++) {
        WT_ITEM key = item(keys[at]), value = item(values[at]);
        cursor->set_key(cursor, &key);
        cursor->set_value(cursor, &value);
        int code = cursor->insert(cursor);
        if (code != 0) return code;
    }
    return 0;
}

/* Commits, or rolls back after an error, which is the answer then. */
static int finish(WT_SESSION *session, int code) {
    if (code == 0) return session->commit_transaction(session, NULL);
    session->rollback_transaction(session, NULL);
    return code;
}

static int wt_put(void *begun, const struct peers_slice *keys, const struct peers_slice *values,
                  size_t count) {
    struct worker *worker = begun;
    WT_SESSION *session = worker->session;
    int code;
    do {
        if ((code = session->begin_transaction(session, NULL)) != 0) return code;
        code = finish(session, put_all(worker->cursor, keys, values, count));
    } while (code == WT_ROLLBACK);
    int also = worker->cursor->reset(worker->cursor);
    return code != 0 ? code : also;
}

static int wt_get(void *begun, struct peers_slice key, peers_read read, void *context) {
    struct worker *worker = begun;
    WT_CURSOR *cursor = worker->cursor;
    WT_ITEM wanted = item(key), value;
    cursor->set_key(cursor, &wanted);
    int code = cursor->search(cursor);
    if (code == 0 && (code = cursor->get_value(cursor, &value)) == 0)
        read(context, key, (struct peers_slice){value.data, value.size});
    int also = cursor->reset(cursor);
    if (code == WT_NOTFOUND) return PEERS_NOT_FOUND;
    return code != 0 ? code : also;
}

static int wt_scan(void *begun, struct peers_slice from, size_t limit, peers_read read,
                   void *context, size_t *count) {
    struct worker *worker = begun;
    WT_CURSOR *cursor = worker->cursor;
    WT_ITEM wanted = item(from);
    int exact = 0;
    *count = 0;
    cursor->set_key(cursor, &wanted);
    int code = cursor->search_near(cursor, &exact);
    if (code == 0 && exact < 0) code = cursor->next(cursor);
    while (code == 0 && *count < limit) {
        WT_ITEM key, value;
        if ((code = cursor->get_key(cursor, &key)) != 0) break;
        if ((code = cursor->get_value(cursor, &value)) != 0) break;
        read(context, (struct peers_slice){key.data, key.size},
             (struct peers_slice){value.data, value.size});
        if (++*count < limit) code = cursor->next(cursor);
    }
    int also = cursor->reset(cursor);
    if (code == WT_NOTFOUND) code = 0;
    return code != 0 ? code : also;
}

static int change_one(WT_CURSOR *cursor, struct peers_slice key, peers_change change,
                      void *context) {
    WT_ITEM wanted = item(key), value;
    struct peers_slice before = {NULL, 0};
    cursor->set_key(cursor, &wanted);
    int code = cursor->search(cursor);
    if (code == 0) {
        if ((code = cursor->get_value(cursor, &value)) != 0) return code;
        before = (struct peers_slice){value.data, value.size};
    } else if (code != WT_NOTFOUND) {
        return code;
    }
    struct peers_slice after = change(context, before);
    return put_all(cursor, &key, &after, 1);
}

static int wt_update(void *begun, struct peers_slice key, peers_change change, void *context) {
    struct worker *worker = begun;
    WT_SESSION *session = worker->session;
    int code;
    do {
        if ((code = session->begin_transaction(session, "isolation=snapshot")) != 0) return code;
        code = finish(session, change_one(worker->cursor, key, change, context));
    } while (code == WT_ROLLBACK);
    int also = worker->cursor->reset(worker->cursor);
    return code != 0 ? code : also;
}

static int transact_once(WT_CURSOR *cursor, const struct peers_transaction *all,
                         peers_read_at read, void *context) {
    for (size_t at = 0; at < all->read_count; at++) {
        WT_ITEM wanted = item(all->reads[at]), value;
        struct peers_slice found = {NULL, 0};
        cursor->set_key(cursor, &wanted);
        int code = cursor->search(cursor);
        if (code == 0) {
            if ((code = cursor->get_value(cursor, &value)) != 0) return code;
            found = (struct peers_slice){value.data, value.size};
        } else if (code != WT_NOTFOUND) {
            return code;
        }
        read(context, at, found);
    }
    return put_all(cursor, all->keys, all->values, all->put_count);
}

static int wt_transact(void *begun, const struct peers_transaction *all, peers_read_at read,
                       void *context, uint64_t *repeats) {
    struct worker *worker = begun;
    WT_SESSION *session = worker->session;
    int code;
    for (*repeats = 0;; *repeats += 1) {
        if ((code = session->begin_transaction(session, "isolation=snapshot")) != 0) return code;
        code = finish(session, transact_once(worker->cursor, all, read, context));
        if (code != WT_ROLLBACK) break;
    }
    int also = worker->cursor->reset(worker->cursor);
    return code != 0 ? code : also;
}

static const char *wt_error(int number) { return wiredtiger_strerror(number); }

static const char *wt_version(void) { return wiredtiger_version(NULL, NULL, NULL); }

const struct peers_engine peers_wiredtiger = {
    wt_open, wt_close, wt_checkpoint, wt_sync, wt_begin, wt_end,
    wt_put,  wt_get,   wt_scan,       wt_update, wt_transact, wt_error, wt_version,
};
