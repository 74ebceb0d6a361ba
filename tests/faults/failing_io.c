/* Makes some of a process's calls on the files below a directory fail, or move fewer bytes than asked for.
 *
 * FAILING_IO=SEED:PERMILLE:DIRECTORY, which may be set when the process is under way. Every call is decided by a
 * generator of the seed. What reads or syncs fails with EIO; what writes, or makes names, with EIO, ENOSPC or EDQUOT.
 *
 * A process may also choose one call that is to fail, by its number: fail_call and calls_made. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static uint64_t state;
static int permille = -1;
static const char *below;

static void begin(void) {
    const char *given = getenv("FAILING_IO");
    char *rest = NULL;
    if (given == NULL) return;
    state = strtoull(given, &rest, 10) * 2654435769u + 88172645463325252u;
    int wanted = rest != NULL && *rest == ':' ? (int)strtol(rest + 1, &rest, 10) : 0;
    if (rest == NULL || *rest != ':') return;
    below = strdup(rest + 1);
    permille = wanted;
}

static int64_t chosen, made;

/* From here on, have the call of this number fail with ENOSPC, of those that write or make names below the directory. */
void fail_call(const char *directory, int64_t number) {
    below = directory;
    permille = 1;
    __atomic_store_n(&made, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&chosen, number, __ATOMIC_SEQ_CST);
}

/* How many there were since. None of the later ones fails. */
int64_t calls_made(void) {
    permille = 0;
    __atomic_store_n(&chosen, 0, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&made, __ATOMIC_SEQ_CST);
}

enum { GOES_ON, FAILS, SHORT };

/* What becomes of a call. Sets errno if it is to fail. */
static int verdict(int writes) {
    int64_t number = __atomic_load_n(&chosen, __ATOMIC_SEQ_CST);
    if (number != 0) {
        if (!writes || __atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST) != number) return GOES_ON;
        errno = ENOSPC;
        return FAILS;
    }
    uint64_t x = __atomic_add_fetch(&state, 0x9E3779B97F4A7C15u, __ATOMIC_RELAXED);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    if (x % 1000 >= (uint64_t)permille) return GOES_ON;
    if ((x >> 32) % 2) return SHORT;
    static const int reasons[] = {EIO, ENOSPC, EDQUOT};
    errno = reasons[writes ? (x >> 40) % 3 : 0];
    return FAILS;
}

static int is_named(const char *path) {
    if (permille < 0) begin();
    return permille > 0 && strncmp(path, below, strlen(below)) == 0;
}

static int is_open(int descriptor) {
    char link[64], path[4096];
    if (permille < 0) begin();
    if (permille <= 0) return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0) return 0;
    path[length] = 0;
    return is_named(path);
}

static int named_fails(const char *path) { return is_named(path) && verdict(1) == FAILS; }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define HALF(how, size) ((how) == SHORT && (size) > 1 ? (size) / 2 : (size))

ssize_t write(int descriptor, const void *data, size_t size) {
    int how = is_open(descriptor) ? verdict(1) : GOES_ON;
    return how == FAILS ? -1 : REAL(write)(descriptor, data, HALF(how, size));
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t at) {
    int how = is_open(descriptor) ? verdict(1) : GOES_ON;
    return how == FAILS ? -1 : REAL(pwrite64)(descriptor, data, HALF(how, size), at);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    int how = is_open(descriptor) ? verdict(1) : GOES_ON;
    return how == FAILS ? -1 : REAL(writev)(descriptor, parts, HALF(how, count));
}

ssize_t read(int descriptor, void *data, size_t size) {
    int how = is_open(descriptor) ? verdict(0) : GOES_ON;
    return how == FAILS ? -1 : REAL(read)(descriptor, data, HALF(how, size));
}

ssize_t pread64(int descriptor, void *data, size_t size, off64_t at) {
    int how = is_open(descriptor) ? verdict(0) : GOES_ON;
    return how == FAILS ? -1 : REAL(pread64)(descriptor, data, HALF(how, size), at);
}

ssize_t preadv64(int descriptor, const struct iovec *parts, int count, off64_t at) {
    int how = is_open(descriptor) ? verdict(0) : GOES_ON;
    return how == FAILS ? -1 : REAL(preadv64)(descriptor, parts, HALF(how, count), at);
}

int fsync(int descriptor) {
    return is_open(descriptor) && verdict(0) == FAILS ? -1 : REAL(fsync)(descriptor);
}

int linkat(int from, const char *old, int to, const char *name, int flags) {
    return named_fails(name) ? -1 : REAL(linkat)(from, old, to, name, flags);
}

int link(const char *old, const char *name) { return named_fails(name) ? -1 : REAL(link)(old, name); }

int rename(const char *old, const char *name) { return named_fails(name) ? -1 : REAL(rename)(old, name); }

int unlink(const char *name) { return named_fails(name) ? -1 : REAL(unlink)(name); }

int mkdir(const char *name, mode_t mode) { return named_fails(name) ? -1 : REAL(mkdir)(name, mode); }

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (is_named(path) && verdict(flags & (O_CREAT | O_WRONLY | O_RDWR)) == FAILS) return -1;
    return REAL(open64)(path, flags, mode);
}
