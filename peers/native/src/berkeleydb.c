/* Berkeley DB 5.3: a transactional environment with one B-tree. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <db.h>

#include "shim.h"

#define KEY_BYTES 4096

struct store {
    DB_ENV *env;
    DB *db;
};

struct worker {
    struct store *store;
    void *buffer;
    u_int32_t buffer_bytes;
    /* Where a cursor may write the key that it found. */
    char key[KEY_BYTES];
};

/* Bytes of a bulk read: a multiple of 1,024, several pages. */
#define BULK_BYTES (64 * 1024)
#define PAGE_BYTES 4096
#define GIB (1024ull * 1024 * 1024)

static int result(int code) { return code == DB_NOTFOUND ? PEERS_NOT_FOUND : code; }

static DBT dbt(struct peers_slice slice) {
    DBT out;
    memset(&out, 0, sizeof out);
    out.data = (void *)slice.data;
    out.size = (u_int32_t)slice.bytes;
    out.ulen = out.size;
    out.flags = DB_DBT_USERMEM;
    return out;
}

static int bdb_close(void *opened) {
    struct store *store = opened;
    int code = 0, also = 0;
    if (store->db != NULL) code = store->db->close(store->db, 0);
    if (store->env != NULL) also = store->env->close(store->env, 0);
    free(store);
    return code != 0 ? code : also;
}

static int configure(DB_ENV *env, const struct peers_config *config) {
    int code;
    u_int32_t locks = 100000;
    if ((code = env->set_cachesize(env, (u_int32_t)(config->cache_bytes / GIB),
                                   (u_int32_t)(config->cache_bytes % GIB), 1)) != 0)
        return code;
    if ((code = env->set_lk_detect(env, DB_LOCK_DEFAULT)) != 0) return code;
    if ((code = env->set_lk_max_locks(env, locks)) != 0) return code;
    if ((code = env->set_lk_max_objects(env, locks)) != 0) return code;
    if ((code = env->set_lk_max_lockers(env, config->threads + 1000)) != 0) return code;
    if ((code = env->set_lg_bsize(env, 8 << 20)) != 0) return code;
    if ((code = env->set_lg_max(env, 64 << 20)) != 0) return code;
    if ((code = env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1)) != 0) return code;
    if (config->direct && (code = env->set_flags(env, DB_DIRECT_DB, 1)) != 0) return code;
    if (!config->durable && (code = env->set_flags(env, DB_TXN_NOSYNC, 1)) != 0) return code;
    return 0;
}

static int bdb_open(const struct peers_config *config, void **opened) {
    struct store *store = calloc(1, sizeof *store);
    int code;
    if (store == NULL) return ENOMEM;
    if ((code = db_env_create(&store->env, 0)) != 0) goto failed;
    if ((code = configure(store->env, config)) != 0) goto failed;
    if ((code = store->env->open(store->env, config->directory,
                                 DB_CREATE | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_MPOOL |
                                     DB_INIT_TXN | DB_PRIVATE | DB_THREAD,
                                 0)) != 0)
        goto failed;
    if ((code = db_create(&store->db, store->env, 0)) != 0) goto failed;
    if ((code = store->db->set_pagesize(store->db, PAGE_BYTES)) != 0) goto failed;
    if ((code = store->db->open(store->db, NULL, "bench.db", NULL, DB_BTREE,
                                DB_AUTO_COMMIT | DB_CREATE | DB_THREAD, 0644)) != 0)
        goto failed;
    *opened = store;
    return 0;
failed:
    bdb_close(store);
    return code;
}

static int bdb_sync(void *opened) {
    struct store *store = opened;
    return store->env->log_flush(store->env, NULL);
}

static int bdb_checkpoint(void *opened) {
    struct store *store = opened;
    int code = store->env->txn_checkpoint(store->env, 0, 0, DB_FORCE);
    return code != 0 ? code : bdb_sync(opened);
}

static int bdb_end(void *begun) {
    struct worker *worker = begun;
    free(worker->buffer);
    free(worker);
    return 0;
}

static int bdb_begin(void *opened, void **begun) {
    struct worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) return ENOMEM;
    worker->store = opened;
    worker->buffer_bytes = BULK_BYTES;
    worker->buffer = malloc(worker->buffer_bytes);
    if (worker->buffer == NULL) {
        free(worker);
        return ENOMEM;
    }
    *begun = worker;
    return 0;
}

static int grow(struct worker *worker, u_int32_t bytes) {
    u_int32_t wanted = (bytes + 1023) / 1024 * 1024;
    void *buffer = realloc(worker->buffer, wanted);
    if (buffer == NULL) return ENOMEM;
    worker->buffer = buffer;
    worker->buffer_bytes = wanted;
    return 0;
}

static DBT into_buffer(struct worker *worker) {
    DBT out;
    memset(&out, 0, sizeof out);
    out.data = worker->buffer;
    out.ulen = worker->buffer_bytes;
    out.flags = DB_DBT_USERMEM;
    return out;
}

/* Reads the value of a key into the worker's buffer. */
static int read_value(struct worker *worker, DB_TXN *txn, struct peers_slice key, u_int32_t flags,
                      DBT *value) {
    DB *db = worker->store->db;
    for (;;) {
        DBT wanted = dbt(key);
        *value = into_buffer(worker);
        int code = db->get(db, txn, &wanted, value, flags);
        if (code != DB_BUFFER_SMALL) return code;
        if ((code = grow(worker, value->size)) != 0) return code;
    }
}

static int put_all(struct worker *worker, DB_TXN *txn, const struct peers_slice *keys,
                   const struct peers_slice *values, size_t count) {
    DB *db = worker->store->db;
    for (size_t at = 0; at < count; at++) {
        DBT key = dbt(keys[at]), value = dbt(values[at]);
        int code = db->put(db, txn, &key, &value, 0);
        if (code != 0) return code;
    }
    return 0;
}

static int bdb_put(void *begun, const struct peers_slice *keys, const struct peers_slice *values,
                   size_t count) {
    struct worker *worker = begun;
    DB_ENV *env = worker->store->env;
    int code;
    do {
        DB_TXN *txn;
        if ((code = env->txn_begin(env, NULL, &txn, 0)) != 0) return code;
        code = put_all(worker, txn, keys, values, count);
        if (code == 0)
            code = txn->commit(txn, 0);
        else
            txn->abort(txn);
    } while (code == DB_LOCK_DEADLOCK);
    return code;
}

static int bdb_get(void *begun, struct peers_slice key, peers_read read, void *context) {
    struct worker *worker = begun;
    DBT value;
    int code;
    do {
        code = read_value(worker, NULL, key, 0, &value);
    } while (code == DB_LOCK_DEADLOCK);
    if (code == 0) read(context, key, (struct peers_slice){value.data, value.size});
    return result(code);
}

/* One bulk read: hands out entries until there are `limit`. */
static int bulk(struct worker *worker, DBC *cursor, DBT *key, u_int32_t how, size_t limit,
                peers_read read, void *context, size_t *count) {
    DBT data;
    int code;
    for (;;) {
        data = into_buffer(worker);
        code = cursor->get(cursor, key, &data, how | DB_MULTIPLE_KEY);
        if (code != DB_BUFFER_SMALL) break;
        if ((code = grow(worker, data.size > worker->buffer_bytes ? data.size
                                                                  : 2 * worker->buffer_bytes)) != 0)
            return code;
    }
    if (code != 0) return code;
    void *at;
    DB_MULTIPLE_INIT(at, &data);
    while (*count < limit) {
        void *k, *v;
        size_t k_bytes, v_bytes;
        DB_MULTIPLE_KEY_NEXT(at, &data, k, k_bytes, v, v_bytes);
        if (at == NULL) break;
        read(context, (struct peers_slice){k, k_bytes}, (struct peers_slice){v, v_bytes});
        *count += 1;
    }
    return 0;
}

static int bdb_scan(void *begun, struct peers_slice from, size_t limit, peers_read read,
                    void *context, size_t *count) {
    struct worker *worker = begun;
    DB *db = worker->store->db;
    DBC *cursor;
    if (from.bytes > KEY_BYTES) return EINVAL;
    int code = db->cursor(db, NULL, &cursor, 0);
    if (code != 0) return code;
    *count = 0;
    DBT key = dbt(from);
    memcpy(worker->key, from.data, from.bytes);
    key.data = worker->key;
    key.ulen = KEY_BYTES;
    u_int32_t how = DB_SET_RANGE;
    while (code == 0 && *count < limit) {
        code = bulk(worker, cursor, &key, how, limit, read, context, count);
        how = DB_NEXT;
    }
    int also = cursor->close(cursor);
    if (code == DB_NOTFOUND) code = 0;
    return code != 0 ? code : also;
}

static int bdb_update(void *begun, struct peers_slice key, peers_change change, void *context) {
    struct worker *worker = begun;
    DB_ENV *env = worker->store->env;
    int code;
    do {
        DB_TXN *txn;
        DBT old;
        if ((code = env->txn_begin(env, NULL, &txn, 0)) != 0) return code;
        code = read_value(worker, txn, key, DB_RMW, &old);
        if (code == 0 || code == DB_NOTFOUND) {
            struct peers_slice before = {NULL, 0};
            if (code == 0) before = (struct peers_slice){old.data, old.size};
            struct peers_slice after = change(context, before);
            code = put_all(worker, txn, &key, &after, 1);
        }
        if (code == 0)
            code = txn->commit(txn, 0);
        else
            txn->abort(txn);
    } while (code == DB_LOCK_DEADLOCK);
    return code;
}

/* Locks of what was read are kept until the end, so that it is serializable. */
static int transact_once(struct worker *worker, DB_TXN *txn, const struct peers_transaction *all,
                         peers_read_at read, void *context) {
    for (size_t at = 0; at < all->read_count; at++) {
        DBT value;
        int code = read_value(worker, txn, all->reads[at], 0, &value);
        if (code != 0 && code != DB_NOTFOUND) return code;
        struct peers_slice found = {NULL, 0};
        if (code == 0) found = (struct peers_slice){value.data, value.size};
        read(context, at, found);
    }
    return put_all(worker, txn, all->keys, all->values, all->put_count);
}

static int bdb_transact(void *begun, const struct peers_transaction *all, peers_read_at read,
                        void *context, uint64_t *repeats) {
    struct worker *worker = begun;
    DB_ENV *env = worker->store->env;
    for (*repeats = 0;; *repeats += 1) {
        DB_TXN *txn;
        int code = env->txn_begin(env, NULL, &txn, 0);
        if (code != 0) return code;
        code = transact_once(worker, txn, all, read, context);
        if (code == 0)
            code = txn->commit(txn, 0);
        else
            txn->abort(txn);
        if (code != DB_LOCK_DEADLOCK) return code;
    }
}

static const char *bdb_error(int number) { return db_strerror(number); }

static const char *bdb_version(void) { return DB_VERSION_STRING; }

const struct peers_engine peers_berkeleydb = {
    bdb_open, bdb_close, bdb_checkpoint, bdb_sync,  bdb_begin,
    bdb_end,  bdb_put,   bdb_get,        bdb_scan,  bdb_update,
    bdb_transact, bdb_error, bdb_version,
};
