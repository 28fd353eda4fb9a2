// CUDA's driver and runtime without a GPU, as far as CuPy and graphfw call them: see real_cupy.py.
// NVIDIA's own headers declare what is defined here; what it works on is in cuda_queues.h.
//
// What CUDA refuses while a stream is captured is refused. Kernels are functions of the host's, which
// modules name: see `cuModuleLoadData`.

#define LOCKED Guard guard(lock)

extern "C" {

// For tests.
int gf_submit(void* stream, void (*work)(void*), void* given) {
    LOCKED;
    return submit(stream_of(stream), [=] { work(given); }, true);
}
int gf_unsupported() {
    fprintf(stderr, "a function of CUDA is called that the stand-in lacks\n");
    return cudaErrorNotSupported;
}

// Devices.
cudaError_t cudaDriverGetVersion(int* version) { *version = 12090; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { *version = 12090; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { *count = devices; return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { *device = current; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= devices) return cudaErrorInvalidDevice;
    current = device;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrMultiProcessorCount: *value = 132; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
    memset(found, 0, sizeof *found);
    strcpy(found->name, "stand-in");
    found->totalGlobalMem = room;
    found->major = 9;
    found->multiProcessorCount = 132;
    found->maxThreadsPerBlock = 1024;
    found->warpSize = 32;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    LOCKED;
    if (is_forbidden()) return cudaErrorStreamCaptureUnsupported;
    return wait_for_all(guard);
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
        case cudaErrorNoDevice: return "cudaErrorNoDevice";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        default: return "cudaError";
    }
}
const char* cudaGetErrorString(cudaError_t error) {
    static thread_local char text[40];
    snprintf(text, sizeof text, "error %d", error);
    return text;
}

// Memory.
cudaError_t cudaMalloc(void** made, size_t nbytes) { LOCKED; return allocate(made, nbytes, true); }
cudaError_t cudaHostAlloc(void** made, size_t nbytes, unsigned) { LOCKED; return allocate(made, nbytes, false); }
cudaError_t cudaFree(void* address) { return release(address); }
cudaError_t cudaFreeHost(void* address) { return release(address); }
cudaError_t cudaMemGetInfo(size_t* left, size_t* total) { *left = room - used; *total = room; return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* address) {
    LOCKED;
    memset(found, 0, sizeof *found);
    const Piece* in = piece(address);
    found->type = !in ? cudaMemoryTypeUnregistered : in->on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    found->device = in ? in->device : -2;
    found->devicePointer = in ? const_cast<void*>(address) : nullptr;
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t nbytes, cudaMemcpyKind kind, cudaStream_t handle) {
    LOCKED;
    Stream* stream = stream_of(handle);
    cudaError_t failed = copy(to, from, nbytes, kind, stream);
    // What goes home to memory that is not pinned is there when the call returns.
    if (!failed && !stream->capture && !piece(to)) failed = wait_for(guard, {stream, stream->given});
    return failed;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t nbytes, cudaMemcpyKind kind) {
    LOCKED;
    Stream* stream = legacy(current);
    cudaError_t failed = copy(to, from, nbytes, kind, stream);
    return failed ? failed : wait_for(guard, {stream, stream->given});
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t nbytes, cudaStream_t handle) {
    LOCKED;
    if (nbytes && !lies(to, nbytes, true)) return cudaErrorInvalidValue;
    return submit(stream_of(handle), [=] { memset(to, value, nbytes); });
}

// Streams.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int) {
    LOCKED;
    auto* one = new Stream;
    one->device = current;
    one->blocking = flags != cudaStreamNonBlocking;
    streams.insert(one);
    *made = reinterpret_cast<cudaStream_t>(one);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    LOCKED;
    Stream* one = stream_of(handle);
    if (!one) return cudaErrorInvalidResourceHandle;
    wait_for(guard, {one, one->given});
    streams.erase(one);  // and not deleted: another one at its address would be what points mean
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    LOCKED;
    Stream* one = stream_of(handle);
    if (!one) return cudaErrorInvalidResourceHandle;
    if (cudaError_t failed = spoiled(one)) return failed;
    if (cudaError_t failed = implicit(one)) return failed;
    if (!one->legacy) return wait_for(guard, {one, one->given});
    return wait_for_all(guard);
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
    LOCKED;
    Stream* one = stream_of(handle);
    if (!one) return cudaErrorInvalidResourceHandle;
    if (cudaError_t failed = spoiled(one)) return failed;
    step(guard);
    return one->done == one->given ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t work, void* given) {
    LOCKED;
    return submit(stream_of(handle), [=] { work(given); }, true);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    LOCKED;
    Stream* one = stream_of(handle);
    auto* at = reinterpret_cast<Event*>(event);
    if (!one) return cudaErrorInvalidResourceHandle;
    if (!at->capture) {
        if (one->capture) {
            one->capture->failed = cudaErrorStreamCaptureIsolation;
            return cudaErrorStreamCaptureIsolation;
        }
        if (at->at.stream) one->waits.push_back(at->at);
        return cudaSuccess;
    }
    if (one->capture && one->capture != at->capture) return cudaErrorStreamCaptureMerge;
    if (one->legacy) return cudaErrorStreamCaptureImplicit;
    one->capture = at->capture;
    one->capture->ends[one].insert(at->ends.begin(), at->ends.end());
    return cudaSuccess;
}

// Events.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
    LOCKED;
    auto* one = new Event;
    one->device = current;
    one->timing = !(flags & cudaEventDisableTiming);
    *made = reinterpret_cast<cudaEvent_t>(one);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { (void)event; return cudaSuccess; }  // others may know it
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    LOCKED;
    auto* one = reinterpret_cast<Event*>(event);
    Stream* stream = stream_of(handle);
    if (!stream || stream->device != one->device) return cudaErrorInvalidResourceHandle;
    one->capture = stream->capture;
    if (stream->capture) {
        one->ends = stream->capture->ends[stream];
        return cudaSuccess;
    }
    const int before = current;
    current = stream->device;  // of all that goes to a stream, only this may be done from another one
    cudaError_t failed = submit(stream, [=] { one->time = now(); });
    current = before;
    one->at = {stream, stream->given};
    return failed;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    LOCKED;
    auto* one = reinterpret_cast<Event*>(event);
    if (one->capture) return cudaErrorCapturedEvent;
    if (is_forbidden()) return cudaErrorStreamCaptureUnsupported;
    step(guard);
    return !one->at.stream || reached(one->at) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    LOCKED;
    auto* one = reinterpret_cast<Event*>(event);
    if (one->capture) return cudaErrorCapturedEvent;
    return one->at.stream ? wait_for(guard, one->at) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    LOCKED;
    auto *first = reinterpret_cast<Event*>(begin), *last = reinterpret_cast<Event*>(end);
    for (const Event* one : {first, last})
        if (!one->timing || !one->at.stream) return cudaErrorInvalidResourceHandle;
    if (!reached(first->at) || !reached(last->at)) return cudaErrorNotReady;
    *milliseconds = float(last->time - first->time);
    return cudaSuccess;
}

// Graphs.
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    LOCKED;
    Stream* one = stream_of(handle);
    if (!one || one->legacy || one->capture) return cudaErrorStreamCaptureUnsupported;
    one->capture = std::make_shared<Capture>();
    one->capture->origin = one;
    one->capture->mode = mode;
    one->capture->thread = std::this_thread::get_id();
    one->capture->ends[one] = {};
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    LOCKED;
    Stream* one = stream_of(handle);
    if (cudaError_t failed = implicit(one)) return failed;
    *status = !one->capture ? cudaStreamCaptureStatusNone
        : one->capture->failed ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* made) {
    LOCKED;
    Stream* one = stream_of(handle);
    *made = nullptr;
    if (!one->capture) return cudaErrorIllegalState;
    std::shared_ptr<Capture> ended = one->capture;
    if (ended->origin != one) return cudaErrorStreamCaptureUnmatched;
    if (ended->mode != cudaStreamCaptureModeRelaxed && ended->thread != std::this_thread::get_id())
        return cudaErrorStreamCaptureWrongThread;
    for (Stream* other : streams)
        if (other->capture == ended) other->capture = nullptr;
    if (ended->failed) return cudaErrorStreamCaptureInvalidated;
    // What other streams have launched must come before the origin's end.
    std::set<size_t> before = ended->ends[one];
    for (std::vector<size_t> left(before.begin(), before.end()); !left.empty();) {
        const size_t last = left.back();
        left.pop_back();
        for (size_t next : ended->nodes[last].after)
            if (before.insert(next).second) left.push_back(next);
    }
    if (before.size() < ended->nodes.size()) return cudaErrorStreamCaptureUnjoined;
    *made = reinterpret_cast<cudaGraph_t>(new Graph{ended->nodes});
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
    LOCKED;
    const auto* known = reinterpret_cast<Graph*>(graph);
    *made = reinterpret_cast<cudaGraphExec_t>(new std::shared_ptr<Graph>(new Graph(*known)));
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
    LOCKED;
    std::shared_ptr<Graph> graph = *reinterpret_cast<std::shared_ptr<Graph>*>(handle);
    const auto& nodes = graph->nodes;
    const bool unlocked = std::any_of(nodes.begin(), nodes.end(), [](const Node& one) { return one.unlocked; });
    const auto work = [graph] {
        std::set<size_t> left;
        for (size_t i = 0; i < graph->nodes.size(); i++) left.insert(i);
        while (!left.empty()) {
            std::vector<size_t> ready;
            for (size_t i : left) {
                const auto& after = graph->nodes[i].after;
                const auto is_left = [&](size_t other) { return left.count(other); };
                if (std::none_of(after.begin(), after.end(), is_left)) ready.push_back(i);
            }
            const size_t chosen = ready[chance() % ready.size()];
            graph->nodes[chosen].work();
            left.erase(chosen);
        }
    };
    return submit(stream_of(stream), work, unlocked);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete reinterpret_cast<Graph*>(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    delete reinterpret_cast<std::shared_ptr<Graph>*>(graph);
    return cudaSuccess;
}

// Modules: a line for each function, with its name, what runs it, its address, the threads that a
// block may have, and the sizes of its parameters.
CUresult cuDriverGetVersion(int* version) { *version = 12090; return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char** text) { *text = "CUDA_ERROR"; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char** text) {
    *text = cudaGetErrorString(cudaError_t(error));
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* made, const void* image) {
    LOCKED;
    std::istringstream lines(static_cast<const char*>(image));
    std::string line;
    if (!std::getline(lines, line) || line != "host") return CUDA_ERROR_INVALID_IMAGE;
    auto one = std::make_unique<Module>();
    one->device = current;
    while (std::getline(lines, line)) {
        std::istringstream words(line);
        std::string name;
        Function& made = *(one->functions[(words >> name, name)] = std::make_unique<Function>());
        size_t launch, entry;
        words >> launch >> entry >> made.threads;
        made.launch = reinterpret_cast<Launch>(launch);
        made.entry = reinterpret_cast<void (*)(void**)>(entry);
        made.device = current;
        for (size_t size; words >> size;) made.sizes.push_back(size);
    }
    *made = reinterpret_cast<CUmodule>(one.release());
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }  // graphs may know its functions
CUresult cuModuleGetFunction(CUfunction* made, CUmodule handle, const char* name) {
    LOCKED;
    auto& known = reinterpret_cast<Module*>(handle)->functions;
    auto found = known.find(name);
    if (found == known.end()) return CUDA_ERROR_NOT_FOUND;
    *made = reinterpret_cast<CUfunction>(found->second.get());
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    LOCKED;
    const bool known = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    if (!known || value > 227 << 10) return CUDA_ERROR_INVALID_VALUE;
    reinterpret_cast<Function*>(handle)->most_shared = value;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(
    CUfunction handle, unsigned grid, unsigned pieces, unsigned depth, unsigned x, unsigned y, unsigned z,
    unsigned shared, CUstream stream, void** params, void**
) {
    LOCKED;
    auto* one = reinterpret_cast<Function*>(handle);
    if (one->device != current) return CUDA_ERROR_INVALID_HANDLE;
    const bool fits = !(grid >> 31) && pieces <= 65535 && depth == 1 && z == 1 && x * y <= 1024;
    if (!fits || int(shared) > one->most_shared) return CUDA_ERROR_INVALID_VALUE;
    if (x * y > one->threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    auto held = std::make_shared<std::vector<std::vector<char>>>();
    for (size_t i = 0; i < one->sizes.size(); i++) {
        const auto* begin = static_cast<const char*>(params[i]);
        held->emplace_back(begin, begin + one->sizes[i]);
    }
    return CUresult(submit(stream_of(stream), [=] {
        std::vector<void*> given;
        for (auto& value : *held) given.push_back(value.data());
        static std::mutex one_at_a_time;
        std::lock_guard<std::mutex> guard(one_at_a_time);
        if (one->launch(one->entry, grid, pieces, x, y, shared, given.data()))
            broken = cudaErrorLaunchFailure;
    }));
}

}  // extern "C"
