// The machine that the kernels run on: blocks one after the other, their threads as fibres.
//
// A fibre runs until it waits at a barrier or ends. When all fibres of a block (or of a warp) wait, they go
// on. Each round they are resumed in the order asked for: 0 forward, 1 backward, 2 at random.
//
// ThreadSanitizer is told of fibres, and that switching between them orders nothing: only barriers do. So it
// sees each thread of the grid as one of its own, although only one runs at a time, and finds any two that
// touch the same memory without a barrier or atomics between. Threads of different blocks are never ordered.
// This file is compiled without instrumentation. Built with HOST_SERVER it is a program that reads launches
// from its standard input, which is how sanitisers are used; without, a library.

#include "cuda_on_host.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <string>
#include <vector>

#ifdef HOST_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_java_init(unsigned long begin, unsigned long size);
void __tsan_java_alloc(unsigned long begin, unsigned long size);
void __tsan_java_free(unsigned long begin, unsigned long size);
}
#else
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
#endif
#ifdef HOST_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

extern unsigned char __start_shared_memory[] __attribute__((weak));
extern unsigned char __stop_shared_memory[] __attribute__((weak));

namespace {

const size_t STACK = 128 * 1024;
const unsigned char POISON = 0xc3;  // as a float or a double: a large negative number

enum State { READY, AT_BLOCK_BARRIER, AT_WARP_BARRIER, DONE };

struct Fibre {
    ucontext_t context;
    char* stack;
    unsigned int thread;
    State state;
    unsigned int n_block_barriers, n_warp_barriers;
    unsigned char given[16];
    void* tsan;
    void* fake_stack;
};

std::vector<Fibre> fibres;
struct {
    ucontext_t context;
    void* tsan;
    void* fake_stack;
    const void* stack;
    size_t stack_size;
} scheduler;
Fibre* current;
dim3 the_block, the_block_size, the_grid_size;
void (*the_kernel)(void**);
void** the_arguments;
uint64_t end_mark;
// What threads wait at: each barrier of each block or warp has a mark of its own, two of which take turns. A
// thread that goes on must not see what others, that went on before it, have done since.
uint64_t marks[1 << 20];
size_t first_mark;
const size_t MARKS_OF_BLOCK = 2 * (1 + 32);
host::Registration* kernels;
std::string complaint;

uint64_t random_state;
uint64_t random_number() {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return random_state >> 33;
}

void to_scheduler(bool last) {
#ifdef HOST_ASAN
    __sanitizer_start_switch_fiber(last ? nullptr : &current->fake_stack, scheduler.stack,
                                   scheduler.stack_size);
#endif
#ifdef HOST_TSAN
    __tsan_switch_to_fiber(scheduler.tsan, 1);
#endif
    swapcontext(&current->context, &scheduler.context);
#ifdef HOST_ASAN
    __sanitizer_finish_switch_fiber(current->fake_stack, nullptr, nullptr);
#endif
}

void begin() {
#ifdef HOST_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &scheduler.stack, &scheduler.stack_size);
#endif
    the_kernel(the_arguments);
    __tsan_release(&end_mark);
    current->state = DONE;
    to_scheduler(true);
}

void resume(Fibre& fibre) {
    current = &fibre;
#ifdef HOST_ASAN
    __sanitizer_start_switch_fiber(&scheduler.fake_stack, fibre.stack, STACK);
#endif
#ifdef HOST_TSAN
    __tsan_switch_to_fiber(fibre.tsan, 1);
#endif
    swapcontext(&scheduler.context, &fibre.context);
#ifdef HOST_ASAN
    __sanitizer_finish_switch_fiber(scheduler.fake_stack, nullptr, nullptr);
#endif
}

void wait(State state) {
    current->state = state;
    to_scheduler(false);
}

void start(Fibre& fibre, unsigned int number) {
    fibre.thread = number;
    fibre.state = READY;
    fibre.n_block_barriers = fibre.n_warp_barriers = 0;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack;
    fibre.context.uc_stack.ss_size = STACK;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, begin, 0);
#ifdef HOST_TSAN
    fibre.tsan = __tsan_create_fiber(0);
#endif
}

std::vector<unsigned int> order_of(unsigned int n, int order) {
    std::vector<unsigned int> numbers(n);
    for (unsigned int i = 0; i < n; ++i) numbers[i] = order == 1 ? n - 1 - i : i;
    if (order == 2)
        for (unsigned int i = n; i > 1; --i) std::swap(numbers[i - 1], numbers[random_number() % i]);
    return numbers;
}

// Let the threads first to last go on if all of them, and at least one, wait in this way.
bool release(unsigned int first, unsigned int last, State waiting) {
    for (unsigned int i = first; i < last; ++i)
        if (fibres[i].state != waiting) return false;
    for (unsigned int i = first; i < last; ++i) fibres[i].state = READY;
    return true;
}

// Shared memory is new for each block: what others did in it is no race. ThreadSanitizer can be told so as by
// Java's allocator.
void forget_shared_memory() {
#ifdef HOST_TSAN
    static bool known = false;
    unsigned long begin = (unsigned long)__start_shared_memory / 8 * 8;
    unsigned long size = ((unsigned long)__stop_shared_memory - begin + 7) / 8 * 8;
    if (!size) return;
    if (known)
        __tsan_java_free(begin, size);
    else
        __tsan_java_init(begin, size);
    known = true;
    __tsan_java_alloc(begin, size);
#endif
}

bool run_block(int order) {
    unsigned int n = the_block_size.x;
    for (volatile unsigned char* byte = __start_shared_memory; byte < __stop_shared_memory; ++byte)
        *byte = POISON;
    forget_shared_memory();
    first_mark = (first_mark + MARKS_OF_BLOCK) % (sizeof marks / sizeof *marks - MARKS_OF_BLOCK);
    for (unsigned int i = 0; i < n; ++i) start(fibres[i], i);
    for (;;) {
        bool moved = false, all_done = true;
        for (unsigned int i : order_of(n, order))
            if (fibres[i].state == READY) {
                resume(fibres[i]);
                moved = true;
            }
        for (unsigned int warp = 0; warp < n; warp += 32)
            moved |= release(warp, std::min(warp + 32, n), AT_WARP_BARRIER);
        moved |= release(0, n, AT_BLOCK_BARRIER);
        for (unsigned int i = 0; i < n; ++i) all_done &= fibres[i].state == DONE;
        if (all_done) break;
        if (!moved) {
            complaint = "threads wait at a barrier that others of their block or warp never reach";
            return false;
        }
    }
#ifdef HOST_TSAN
    for (unsigned int i = 0; i < n; ++i) __tsan_destroy_fiber(fibres[i].tsan);
#endif
    return true;
}

}  // namespace

namespace host {

dim3 thread_index() {
    return {current->thread, 0, 0};
}
dim3 block_index() {
    return the_block;
}
dim3 block_size() {
    return the_block_size;
}
dim3 grid_size() {
    return the_grid_size;
}
int lane() {
    return current->thread % 32;
}

void block_barrier() {
    void* mark = &marks[first_mark + current->n_block_barriers++ % 2];
    __tsan_release(mark);
    wait(AT_BLOCK_BARRIER);
    __tsan_acquire(mark);
}

void warp_barrier() {
    void* mark = &marks[first_mark + 2 * (1 + current->thread / 32) + current->n_warp_barriers++ % 2];
    __tsan_release(mark);
    wait(AT_WARP_BARRIER);
    __tsan_acquire(mark);
}

void exchange(const void* given, void* taken, int size, int source_lane, unsigned int mask) {
    if (mask != 0xffffffffu) abort();  // the kernels use whole warps only
    for (int i = 0; i < size; ++i) current->given[i] = ((const volatile unsigned char*)given)[i];
    wait(AT_WARP_BARRIER);
    const Fibre& source = fibres[current->thread / 32 * 32 + source_lane];
    for (int i = 0; i < size; ++i) ((volatile unsigned char*)taken)[i] = source.given[i];
    wait(AT_WARP_BARRIER);
}

Registration::Registration(const char* name, void (*call)(void**)) : name(name), call(call), next(kernels) {
    kernels = this;
}

}  // namespace host

// Run a kernel; returns what went wrong, or null.
extern "C" const char* run_kernel(const char* name, unsigned int n_blocks, unsigned int block, int order,
                                  unsigned long long seed, void** arguments) {
    const host::Registration* kernel = kernels;
    while (kernel && strcmp(kernel->name, name)) kernel = kernel->next;
    if (!kernel) return "there is no such kernel";
    the_kernel = kernel->call;
    the_arguments = arguments;
    the_block_size = {block, 1, 1};
    the_grid_size = {n_blocks, 1, 1};
    random_state = seed;
    while (fibres.size() < block) {
        fibres.emplace_back();
        fibres.back().stack = (char*)malloc(STACK);
    }
#ifdef HOST_TSAN
    scheduler.tsan = __tsan_get_current_fiber();
#endif
    for (unsigned int number : order_of(n_blocks, order)) {
        the_block = {number, 0, 0};
        if (!run_block(order)) return complaint.c_str();
    }
    __tsan_acquire(&end_mark);
    return nullptr;
}

#ifdef HOST_SERVER
static void read_bytes(void* to, size_t n) {
    if (fread(to, 1, n, stdin) != n) exit(0);
}

template <typename T>
static T read_number() {
    T value;
    read_bytes(&value, sizeof value);
    return value;
}

int main() {
    for (;;) {
        std::string name(read_number<uint32_t>(), ' ');
        read_bytes(&name[0], name.size());
        uint32_t n_blocks = read_number<uint32_t>(), block = read_number<uint32_t>(),
                 order = read_number<uint32_t>();
        uint64_t seed = read_number<uint64_t>();
        uint32_t n_arguments = read_number<uint32_t>();
        std::vector<void*> values(n_arguments), arguments(n_arguments);
        std::vector<size_t> sizes(n_arguments);
        std::vector<bool> is_array(n_arguments);
        for (uint32_t i = 0; i < n_arguments; ++i) {
            is_array[i] = read_number<uint32_t>();
            sizes[i] = read_number<uint64_t>();
            values[i] = malloc(sizes[i]);  // exactly: AddressSanitizer guards both ends
            read_bytes(values[i], sizes[i]);
        }
        for (uint32_t i = 0; i < n_arguments; ++i) arguments[i] = is_array[i] ? (void*)&values[i] : values[i];
        const char* wrong = run_kernel(name.c_str(), n_blocks, block, order, seed, arguments.data());
        if (wrong) {
            fprintf(stderr, "%s\n", wrong);
            return 3;
        }
        for (uint32_t i = 0; i < n_arguments; ++i) {
            if (is_array[i]) fwrite(values[i], 1, sizes[i], stdout);
            free(values[i]);
        }
        fflush(stdout);
    }
}
#endif
