// AMX for processors without it: instructions that they refuse, done by a signal handler.
//
// The library is preloaded into a process. `amx_install` sets the handler of SIGILL, which decodes
// the instruction, does what Intel's manual says (Software Developer's Manual, volume 2), with the
// tiles of the thread, and goes on behind it. What the manual makes a fault of ends the process with
// a message. Any other illegal instruction is passed on to the handler that was there before.
//
// It also stands for the part of Linux that gives the permission to use tiles: `syscall` is
// replaced, and an instruction before the permission ends the process.
//
// To be compiled with -mavx512f, for the conversion of one rounding that vectors have.

#define _GNU_SOURCE
#include <errno.h>
#include <immintrin.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} Config;

// In the order of `tests.support.amx_traps.NAMES`.
enum { LDTILECFG, STTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1, TILESTORED, TDPBF16PS };
enum { KINDS = TDPBF16PS + 1 };

static _Atomic long counts[KINDS];
static _Atomic int threads, configured_threads, is_permitted;
static struct sigaction previous;

static _Thread_local int is_known;
static _Thread_local Config config;
static _Thread_local uint8_t tiles[TILES][ROWS][ROW_BYTES];

static void refuse(const char *what, const uint8_t *at) {
    char text[256];
    int length = snprintf(text, sizeof text, "AMX: %s; at", what);
    for (int i = 0; i < 8; i++)
        length += snprintf(text + length, sizeof text - length, " %02x", at[i]);
    text[length++] = '\n';
    if (write(STDERR_FILENO, text, length) < 0) _exit(3);
    signal(SIGABRT, SIG_DFL);
    abort();
}

#define REQUIRE(condition, what) \
    if (!(condition)) refuse(what, at)

// Decoding.

typedef struct {
    int kind, reg, rm, vvvv, length;
    uint64_t address, stride;
} Instruction;

static uint64_t number(const ucontext_t *context, int reg) {
    static const int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)context->uc_mcontext.gregs[places[reg]];
}

static int64_t signed_bytes(const uint8_t *from, int count) {
    if (count == 1) return (int8_t)*from;
    int32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

// Reads the address of a ModRM byte with memory; it and what follows lie at `at`.
static void decode_address(Instruction *it, const uint8_t *at, int prefix, int index_bit,
                           int base_bit, const ucontext_t *context) {
    const uint8_t *code = at + prefix;
    int mod = code[0] >> 6, rm = code[0] & 7, length = 1, wide = mod == 2 ? 4 : mod;
    if (rm == 4) {
        int scale = code[1] >> 6, index = (code[1] >> 3 & 7) | index_bit, base = code[1] & 7;
        length = 2;
        it->stride = index == 4 ? 0 : number(context, index) << scale;
        if (base == 5 && mod == 0)
            wide = 4;
        else
            it->address = number(context, base | base_bit);
    } else if (rm == 5 && mod == 0) {
        wide = 4;
        it->address = (uint64_t)(at + prefix + 1 + 4);
    } else {
        it->address = number(context, rm | base_bit);
    }
    if (wide) it->address += (uint64_t)signed_bytes(code + length, wide);
    it->length = prefix + length + wide;
}

// Returns 1 where it is an instruction of AMX.
static int decode(Instruction *it, const uint8_t *at, const ucontext_t *context) {
    // VEX in three bytes, the map 0F38, W = 0, L = 0; the bits R, X, B and vvvv are inverted.
    if (at[0] != 0xC4 || (at[1] & 0x1F) != 2 || at[2] & 0x84) return 0;
    int r = at[1] & 0x80 ? 0 : 8, x = at[1] & 0x40 ? 0 : 8, b = at[1] & 0x20 ? 0 : 8;
    int prefix = at[2] & 3, opcode = at[3], modrm = at[4];
    int has_memory = modrm >> 6 != 3;
    enum { NONE, P66, PF3, PF2 };
    memset(it, 0, sizeof *it);
    it->kind = -1;
    it->vvvv = ~at[2] >> 3 & 15;
    it->reg = (modrm >> 3 & 7) | r;
    it->rm = (modrm & 7) | b;
    if (opcode == 0x49 && has_memory && it->reg == 0 && prefix <= P66)
        it->kind = prefix == NONE ? LDTILECFG : STTILECFG;
    else if (opcode == 0x49 && modrm == 0xC0 && prefix == NONE)
        it->kind = TILERELEASE;
    else if (opcode == 0x49 && (modrm & 0xC7) == 0xC0 && prefix == PF2)
        it->kind = TILEZERO;
    else if (opcode == 0x4B && has_memory && prefix != NONE)
        it->kind = prefix == PF2 ? TILELOADD : prefix == P66 ? TILELOADDT1 : TILESTORED;
    else if (opcode == 0x5C && !has_memory && prefix == PF3)
        it->kind = TDPBF16PS;
    if (it->kind < 0) return 0;
    REQUIRE(it->kind == TDPBF16PS || it->vvvv == 0, "vvvv is not 1111");
    it->length = 5;
    if (has_memory) {
        REQUIRE(opcode == 0x49 || (modrm & 7) == 4, "the address of a tile has no SIB byte");
        decode_address(it, at, 4, x, b, context);
    }
    return 1;
}

// What the instructions do.

static void release(void) {
    if (config.palette) configured_threads--;
    memset(&config, 0, sizeof config);
    memset(tiles, 0, sizeof tiles);
}

static void load_config(const uint8_t *memory, const uint8_t *at) {
    Config new;
    memcpy(&new, memory, sizeof new);
    REQUIRE(new.palette <= 1, "there is no such palette");
    release();
    if (new.palette == 0) return;
    for (int i = 0; i < 14; i++) REQUIRE(new.reserved[i] == 0, "reserved bytes are not 0");
    for (int i = 0; i < 16; i++) {
        REQUIRE(i < TILES || (new.row_bytes[i] | new.rows[i]) == 0, "there is no such tile");
        REQUIRE(new.row_bytes[i] <= ROW_BYTES, "rows have more than 64 bytes");
        REQUIRE(new.rows[i] <= ROWS, "there are more than 16 rows");
        REQUIRE(!new.row_bytes[i] == !new.rows[i], "a tile has rows or bytes, but not both");
    }
    config = new;
    configured_threads++;
}

static void check_tile(int tile, const uint8_t *at) {
    REQUIRE(config.palette, "tiles are used before they are configured");
    REQUIRE(tile < TILES, "there is no such tile");
    REQUIRE(config.rows[tile], "a tile is used that is not configured");
    REQUIRE(config.row_bytes[tile] % 4 == 0, "rows are no multiples of 4 bytes");
}

static void zero(int tile, const uint8_t *at) {
    check_tile(tile, at);
    memset(tiles[tile], 0, sizeof tiles[tile]);
    config.start_row = 0;
}

static void load(const Instruction *it, const uint8_t *at) {
    check_tile(it->reg, at);
    uint8_t first = config.start_row, rows = config.rows[it->reg];
    REQUIRE(first < rows, "start_row lies behind the last row");
    for (int row = first; row < ROWS; row++) {
        uint8_t *to = tiles[it->reg][row];
        memset(to, 0, ROW_BYTES);
        if (row < rows)
            memcpy(to, (void *)(it->address + row * it->stride), config.row_bytes[it->reg]);
    }
    config.start_row = 0;
}

static void store(const Instruction *it, const uint8_t *at) {
    check_tile(it->reg, at);
    uint8_t first = config.start_row, rows = config.rows[it->reg];
    REQUIRE(first < rows, "start_row lies behind the last row");
    for (int row = first; row < rows; row++)
        memcpy((void *)(it->address + row * it->stride), tiles[it->reg][row],
               config.row_bytes[it->reg]);
    config.start_row = 0;
}

// Sums over the even places and over the odd ones, fused, apart; then both, and what was there.
// MXCSR is set such that subnormal numbers are zeros, as operands and as results.
static void dot(const Instruction *it, const uint8_t *at) {
    int c = it->reg, a = it->rm, b = it->vvvv;
    check_tile(c, at);
    check_tile(a, at);
    check_tile(b, at);
    REQUIRE(c != a && a != b && b != c, "the three tiles are not different");
    REQUIRE(config.start_row == 0, "start_row is not 0");
    REQUIRE(config.rows[c] == config.rows[a], "rows of the left operand are not those of the sum");
    REQUIRE(config.row_bytes[c] == config.row_bytes[b],
            "columns of the right operand are not those of the sum");
    REQUIRE(config.row_bytes[a] / 4 == config.rows[b], "the operands differ in length");
    const __m512i upper = _mm512_set1_epi32((int)0xFFFF0000);
    const __mmask16 columns = (__mmask16)((1u << config.row_bytes[c] / 4) - 1);
    for (int row = 0; row < ROWS; row++) {
        if (row >= config.rows[c]) {
            memset(tiles[c][row], 0, ROW_BYTES);
            continue;
        }
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        for (int k = 0; k < config.row_bytes[a] / 4; k++) {
            int pair;
            memcpy(&pair, tiles[a][row] + 4 * k, 4);
            __m512i x = _mm512_set1_epi32(pair), y = _mm512_loadu_si512(tiles[b][k]);
            even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                                   _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), even);
            odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),
                                  _mm512_castsi512_ps(_mm512_and_si512(y, upper)), odd);
        }
        __m512 sum = _mm512_loadu_ps(tiles[c][row]);
        sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
        _mm512_storeu_ps(tiles[c][row], _mm512_maskz_mov_ps(columns, sum));
    }
}

static void run(const Instruction *it, const uint8_t *at) {
    REQUIRE(is_permitted, "the system has not been asked for tiles");
    counts[it->kind]++;
    if (!is_known) threads++;
    is_known = 1;
    switch (it->kind) {
    case LDTILECFG: load_config((const uint8_t *)it->address, at); break;
    case STTILECFG: memcpy((void *)it->address, &config, sizeof config); break;
    case TILERELEASE: release(); break;
    case TILEZERO: zero(it->reg, at); break;
    case TILELOADD:
    case TILELOADDT1: load(it, at); break;
    case TILESTORED: store(it, at); break;
    case TDPBF16PS: dot(it, at); break;
    }
}

static void handle(int signal_number, siginfo_t *info, void *data) {
    ucontext_t *context = data;
    const uint8_t *at = (const uint8_t *)context->uc_mcontext.gregs[REG_RIP];
    Instruction it;
    // Rounded to nearest, exceptions masked. What the thread had is restored when it goes on.
    _mm_setcsr(_MM_MASK_MASK | _MM_FLUSH_ZERO_ON | 0x40);
    // Those that follow at once are run at once: a signal takes longer than an instruction.
    for (; decode(&it, at, context); at += it.length) run(&it, at);
    if (at != (const uint8_t *)context->uc_mcontext.gregs[REG_RIP]) {
        context->uc_mcontext.gregs[REG_RIP] = (greg_t)at;
        return;
    }
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal_number, info, data);
    } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
        // The instruction runs once more, now without this handler.
        sigaction(SIGILL, &previous, NULL);
    } else {
        previous.sa_handler(signal_number);
    }
}

// What Python calls.

int amx_install(void) {
    struct sigaction new = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&new.sa_mask);
    return sigaction(SIGILL, &new, &previous);
}

// How often each instruction has been run.
void amx_counts(long *to) {
    for (int i = 0; i < KINDS; i++) to[i] = counts[i];
}

// How many threads have run any.
int amx_threads(void) { return threads; }

// How many threads have tiles that they have not released.
int amx_configured(void) { return configured_threads; }

// A thread that blocks the signal is ended by it.
int sigfillset(sigset_t *set) {
    memset(set, 0xFF, sizeof *set);
    return sigdelset(set, SIGILL);
}

// Linux: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
long syscall(long call, ...) {
    long n[6];
    va_list arguments;
    va_start(arguments, call);
    for (int i = 0; i < 6; i++) n[i] = va_arg(arguments, long);
    va_end(arguments);
    if (call == 158 && n[0] == 0x1023 && n[1] == 18) {
        is_permitted = 1;
        return 0;
    }
    register long r10 __asm__("r10") = n[3];
    register long r8 __asm__("r8") = n[4];
    register long r9 __asm__("r9") = n[5];
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(call), "D"(n[0]), "S"(n[1]), "d"(n[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
