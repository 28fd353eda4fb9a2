// The memory, streams, events and captures of `cuda_driver.cpp`, which this is put before.
//
// Nothing is done at once: what is submitted to a stream waits until somebody waits for it, and then
// streams take turns by chance. So whoever reads too early, or gives memory back too early, is wrong
// each time.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using Work = std::function<void()>;
using Launch = int (*)(void (*)(void**), unsigned, unsigned, unsigned, unsigned, unsigned, void**);

namespace {

struct Stream;
struct Point { Stream* stream; size_t count; };  // reached when the stream has done so many tasks
struct Task { std::vector<Point> after; Work work; bool unlocked; };
struct Node { std::set<size_t> after; Work work; bool unlocked; };
struct Capture {
    Stream* origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    std::vector<Node> nodes;
    std::map<Stream*, std::set<size_t>> ends;  // what the next node of a stream comes after
    cudaError_t failed = cudaSuccess;
};
struct Stream {
    int device = 0;
    bool blocking = true, legacy = false;
    std::deque<Task> queue;
    std::vector<Point> waits;  // what its next task comes after
    size_t given = 0, done = 0;
    bool busy = false;  // while a thread does one of its tasks
    std::shared_ptr<Capture> capture;
};
struct Event {
    int device = 0;
    bool timing = true;
    Point at{nullptr, 0};
    double time = 0;
    std::shared_ptr<Capture> capture;
    std::set<size_t> ends;
};
struct Piece { size_t nbytes; int device; bool on_device; };
struct Function {
    int device;
    Launch launch;
    void (*entry)(void**);
    unsigned threads;
    std::vector<size_t> sizes;  // of its parameters
    int most_shared = 48 << 10;
};
struct Module { int device; std::map<std::string, std::unique_ptr<Function>> functions; };

std::recursive_mutex lock;
std::mt19937 chance(7);
std::map<size_t, Piece> memory;
std::set<Stream*> streams;
std::map<int, Stream*> legacies;
std::map<std::pair<std::thread::id, int>, Stream*> per_thread;
const int devices = 2;
const size_t room = size_t(8) << 30;
size_t used = 0;
cudaError_t broken = cudaSuccess;  // what the next one is told who waits
thread_local int current = 0;

using Guard = std::unique_lock<std::recursive_mutex>;

double now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(since).count();
}

Stream* legacy(int device) {
    Stream*& found = legacies[device];
    if (!found) {
        found = new Stream;
        found->device = device;
        found->legacy = true;
        streams.insert(found);
    }
    return found;
}

Stream* stream_of(void* handle) {
    if (handle == nullptr || handle == cudaStreamLegacy) return legacy(current);
    if (handle == cudaStreamPerThread) {
        Stream*& found = per_thread[{std::this_thread::get_id(), current}];
        if (!found) {
            found = new Stream;
            found->device = current;
            streams.insert(found);
        }
        return found;
    }
    auto* found = static_cast<Stream*>(handle);
    return streams.count(found) ? found : nullptr;
}

bool reached(const Point& point) {
    return !streams.count(point.stream) || point.stream->done >= point.count;
}

// Does one task, of any stream that need not wait; says whether there was one.
bool step(Guard& guard) {
    std::vector<Stream*> ready;
    for (Stream* one : streams) {
        if (one->queue.empty() || one->busy) continue;
        const auto& after = one->queue.front().after;
        if (std::all_of(after.begin(), after.end(), reached)) ready.push_back(one);
    }
    if (ready.empty()) return false;
    Stream* chosen = ready[chance() % ready.size()];
    Task task = std::move(chosen->queue.front());
    chosen->queue.pop_front();
    chosen->busy = true;
    if (task.unlocked) guard.unlock();  // it wants what a thread may have that waits for us
    task.work();
    if (task.unlocked) guard.lock();
    chosen->busy = false;
    chosen->done++;
    return true;
}

cudaError_t wait_for(Guard& guard, const Point& point) {
    while (!reached(point)) {
        if (step(guard)) continue;
        guard.unlock();  // another thread is in the middle of it
        std::this_thread::yield();
        guard.lock();
    }
    return std::exchange(broken, cudaSuccess);
}

cudaError_t wait_for_all(Guard& guard) {
    cudaError_t failed = cudaSuccess;
    for (Stream* one : std::set<Stream*>(streams))
        if (cudaError_t found = wait_for(guard, {one, one->given})) failed = found;
    return failed;
}

// Whether any stream is captured so that calls which wait, or ask for memory, are not allowed here.
bool is_forbidden() {
    for (const Stream* one : streams) {
        if (!one->capture || one->capture->mode == cudaStreamCaptureModeRelaxed) continue;
        if (one->capture->mode == cudaStreamCaptureModeGlobal) return true;
        if (one->capture->thread == std::this_thread::get_id()) return true;
    }
    return false;
}

// The legacy stream waits for all blocking ones, and they for it: not while one of them is captured.
cudaError_t implicit(Stream* one) {
    if (!one->legacy) return cudaSuccess;
    for (Stream* other : streams)
        if (other->capture && other->blocking) {
            other->capture->failed = cudaErrorStreamCaptureImplicit;
            return cudaErrorStreamCaptureImplicit;
        }
    return cudaSuccess;
}

cudaError_t submit(Stream* one, Work work, bool unlocked = false) {
    if (!one || one->device != current) return cudaErrorInvalidResourceHandle;
    if (one->capture) {
        Capture& into = *one->capture;
        if (into.failed) return cudaErrorStreamCaptureInvalidated;
        into.nodes.push_back({into.ends[one], std::move(work), unlocked});
        into.ends[one] = {into.nodes.size() - 1};
        return cudaSuccess;
    }
    if (cudaError_t failed = implicit(one)) return failed;
    Task task{std::move(one->waits), std::move(work), unlocked};
    one->waits.clear();
    if (one->legacy) {
        for (Stream* other : streams)
            if (other->blocking && other->device == one->device && other != one)
                task.after.push_back({other, other->given});
    } else if (one->blocking) {
        Stream* other = legacy(one->device);
        task.after.push_back({other, other->given});
    }
    one->queue.push_back(std::move(task));
    one->given++;
    return cudaSuccess;
}

// Where a stream is captured nobody may wait for it, and who tries has spoiled it.
cudaError_t spoiled(Stream* one) {
    if (!one->capture) return cudaSuccess;
    one->capture->failed = cudaErrorStreamCaptureInvalidated;
    return cudaErrorStreamCaptureUnsupported;
}

const Piece* piece(const void* address, size_t nbytes = 1) {
    auto found = memory.upper_bound(reinterpret_cast<size_t>(address));
    if (found == memory.begin()) return nullptr;
    --found;
    const size_t behind = reinterpret_cast<size_t>(address) - found->first;
    return behind + nbytes <= std::max(found->second.nbytes, size_t(1)) ? &found->second : nullptr;
}

bool lies(const void* address, size_t nbytes, bool on_device) {
    const Piece* found = piece(address, nbytes);
    return on_device ? found && found->on_device : !found || !found->on_device;
}

cudaError_t allocate(void** made, size_t nbytes, bool on_device) {
    if (is_forbidden()) return cudaErrorStreamCaptureUnsupported;
    if (on_device && used + nbytes > room) return cudaErrorMemoryAllocation;
    *made = aligned_alloc(512, (nbytes + 511) / 512 * 512 + 512);
    memset(*made, 0xA5, nbytes);
    memory[reinterpret_cast<size_t>(*made)] = {nbytes, current, on_device};
    if (on_device) used += nbytes;
    return cudaSuccess;
}

cudaError_t release(void* address) {
    if (!address) return cudaSuccess;
    Guard guard(lock);
    auto found = memory.find(reinterpret_cast<size_t>(address));
    if (found == memory.end()) return cudaErrorInvalidValue;
    if (is_forbidden()) return cudaErrorStreamCaptureUnsupported;
    wait_for_all(guard);
    if (found->second.on_device) used -= found->second.nbytes;
    memory.erase(found);
    free(address);
    return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, size_t nbytes, cudaMemcpyKind kind, Stream* stream) {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!nbytes) return cudaSuccess;
    if (kind != cudaMemcpyDefault && !(lies(to, nbytes, to_device) && lies(from, nbytes, from_device)))
        return cudaErrorInvalidValue;
    if (!piece(from)) {  // memory that is not pinned is read before the call returns
        auto held = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + nbytes);
        return submit(stream, [=] { memcpy(to, held->data(), nbytes); });
    }
    return submit(stream, [=] { memmove(to, from, nbytes); });
}

struct Graph { std::vector<Node> nodes; };

}  // namespace
