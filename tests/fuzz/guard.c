// Memory for NumPy's arrays directly before a page that may not be touched.
//
// The functions are an allocator as `PyDataMem_SetHandler` of NumPy takes it. Each array lies at the
// end of a mapping of its own. Behind it is a page without access: the first byte outside ends the
// process with a signal. New memory holds a poison byte, which shows where it is read before it is
// written. Memory that is freed is unmapped, so that later accesses end the process, too.

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Before the array, at the mapping's begin.
typedef struct {
    size_t mapped, bytes;
} Header;

static unsigned char poison = 0xFF;

void guard_poison(unsigned char byte) { poison = byte; }

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static Header *header_of(void *array) {
    uintptr_t before = (uintptr_t)array - sizeof(Header);
    return (Header *)(before - before % page());
}

static void *taken(size_t bytes) {
    size_t room = bytes + sizeof(Header) + page() - 1;
    if (room < bytes || room > PTRDIFF_MAX) {
        return NULL;
    }
    room -= room % page();
    char *begin = mmap(NULL, room + page(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) {
        return NULL;
    }
    if (mprotect(begin + room, page(), PROT_NONE)) {
        munmap(begin, room + page());
        return NULL;
    }
    *(Header *)begin = (Header){room + page(), bytes};
    return begin + room - bytes;
}

void guard_free(void *context, void *array, size_t bytes) {
    (void)context, (void)bytes;
    if (array) {
        Header *header = header_of(array);
        munmap(header, header->mapped);
    }
}

void *guard_malloc(void *context, size_t bytes) {
    (void)context;
    void *array = taken(bytes);
    return array ? memset(array, poison, bytes) : NULL;
}

void *guard_calloc(void *context, size_t count, size_t size) {
    (void)context;
    size_t bytes;
    // The system's pages hold zeros.
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : taken(bytes);
}

void *guard_realloc(void *context, void *array, size_t bytes) {
    void *other = guard_malloc(context, bytes);
    if (array && other) {
        size_t kept = header_of(array)->bytes;
        memcpy(other, array, kept < bytes ? kept : bytes);
        guard_free(context, array, kept);
    }
    return other;
}
