"""Names of other frameworks that no one name of graphfw stands for: what to do instead.

What is not indented is what to do, and the names are below it. Those with `*` are patterns, which
are tried when everything else has failed.
"""

from __future__ import annotations

TEXTS = """
write gf.grad(loss, xs), or optimizer.minimize(loss)
    backward autograd func
write gf.no_grad(), or gf.stop_gradient(x)
    enable_grad set_grad_enabled inference_mode is_grad_enabled is_inference
    is_inference_mode_enabled
write gf.tree.map(fn, tree), of nested tuples, lists and dicts; leaves and structure are there, too
    tree_util tree_* treedef_* PyTreeDef all_leaves keystr
nodes of gf.tree are tuples, lists and dicts, and everything else is a leaf
    register_dataclass register_pytree_* register_static
write functools.partial
    Partial
losses are functions in gf.nn: gf.nn.cross_entropy, gf.nn.mse
    losses
functions are in gf (gf.relu, gf.softmax), losses in gf.nn (gf.nn.mse)
    functional ops lax numpy scipy
write x[i : i + n], or gf.take(x, i + gf.arange(n), axis=axis) for an index that a run computes
    dynamic_slice dynamic_slice_in_dim
write x.at[i : i + n].set(values), or x.at[i + gf.arange(n)] for an index that a run computes
    dynamic_update_slice dynamic_update_slice_in_dim
write gf.einsum(equation, x, y)
    dot_general
write gf.conv(x, weight, stride=…, padding=…)
    conv_general_dilated
write gf.broadcast_to(gf.reshape(x, dims), shape)
    broadcast_in_dim
write gf.optim.schedules, as in gf.optim.Adam(gf.optim.schedules.cosine(0.1, 1000))
    lr_scheduler schedules LRScheduler LearningRateScheduler
not in graphfw: scipy.optimize.minimize takes a gf.function of loss and gradients
    nnls polyak_sgd
make the layers in __init__, and call them in forward
    compact
layers are in gf.nn
    layers modules
optimisers are in gf.optim
    optimizers
initial values are in gf.nn.init
    initializers
options are arguments: gf.Session(g, executor=…), gf.set_default_dtype(dtype)
    config
activations are functions in gf, and layers in gf.nn: gf.relu, gf.nn.ReLU()
    Activation
attention is gf.nn.MultiHeadAttention, or gf.scaled_dot_product_attention
    AdditiveAttention attention multi_head_attention_forward
write gf.nn.MultiHeadAttention(embed_dim, num_heads, kv_heads=…)
    GroupQueryAttention
write gf.nn.TransformerEncoder(…) and gf.nn.TransformerDecoder(…): the decoder's call takes both
    Transformer
assign variables to attributes one by one
    ParameterList ParameterDict
call the function itself in forward: no layer is needed for it
    Lambda
write a + b
    Add
write (a + b) / 2
    Average
write a - b
    Subtract
write a * b
    Multiply
write gf.vecdot(a, b)
    Dot
write gf.permute_dims(x, axes)
    Permute
write gf.flatten(x, start, end), or gf.reshape(x, shape)
    flat
write gf.tile(gf.expand_dims(x, axis=1), (1, n, 1))
    RepeatVector
write x * scale + offset
    Rescaling Normalization
write gf.normalize(x)
    UnitNormalization
write gf.einsum(equation, x, weight)
    EinsumDense DenseGeneral
write gf.sum(gf.take(table, indices, axis=0), axis=-2), or a layer gf.nn.EmbeddingBag(…)
    embedding_bag
write x + gf.random.normal(x.shape, std=…)
    GaussianNoise
write gf.dropout(x, p)
    GaussianDropout AlphaDropout FeatureAlphaDropout alpha_dropout feature_alpha_dropout
    feature_dropout
layers of 2 directions are gf.nn.LSTM(…, bidirectional=True)
    Bidirectional
of several layers: gf.nn.LSTM(…, num_layers=2)
    StackedRNNCells
a layer acts on the last dim, whatever is before: call it as it is
    TimeDistributed
set groups=in_channels: gf.conv(x, weight, groups=…), gf.nn.Conv2d(…, groups=…)
    DepthwiseConv1D DepthwiseConv2D conv_tbc
write gf.nn.Conv2d(…, groups=in_channels), followed by a Conv2d of kernel_size=1
    Separable*
write gf.nn.Linear(None, out_features): the first call finds in_features, and makes the variables
    UninitializedParameter UninitializedBuffer
write a slice: x[:, :, 1:-1, 1:-1]
    Cropping1D Cropping2D Cropping3D CenterCrop
write gf.adaptive_max_pool(x, output_size, return_indices=True)
    adaptive_max_pool*_with_indices
write gf.max_pool(x, kernel_size, return_indices=True)
    max_pool*_with_indices
give the layer or the loss its mask
    Masking
gf.nn.init has initialisers: gf.Variable(gf.nn.init.he_normal, shape=…)
    calculate_gain
variables take initial values: gf.Variable(gf.nn.init.normal(std=0.1), shape=…)
    sparse_
not in graphfw: reorder by gf.reshape and gf.permute_dims
    ChannelShuffle channel_shuffle native_channel_shuffle
not in graphfw: write a gf.nn.Module whose forward calls gf's functions
    AdaptiveLogSoftmaxWithLoss ConvLSTM1D ConvLSTM2D ConvLSTM3D RNNBase RNNCellBase
    RReLU rrelu Softmax2d Softshrink Hardshrink Tanhshrink Threshold Wrapper
    ActivityRegularization ReversibleEmbedding FractionalMaxPool*
    fractional_max_pool* PairwiseDistance norm_except_dim renorm embedding_renorm_
not in graphfw: a loss is any scalar tensor, made of gf's functions
    ctc_loss_with_forward_probs
    HingeEmbeddingLoss LinearCrossEntropyLoss LinearCrossEntropyOptions
    MultiLabelMarginLoss MultiLabelSoftMarginLoss SoftMarginLoss
    TripletMarginWithDistanceLoss linear_cross_entropy
    convex_kl_divergence generalized_kl_divergence cosine_distance
    multilabel_*_loss *_margin_with_distance_loss
write gf.nn.hinge(scores, target, power=2)
    SquaredHinge squared_hinge
for pairs of vectors write gf.nn.info_nce(queries, keys)
    ntxent
write gf.nn.augment.random_flip(x), with axis=-2 to exchange top and bottom
    RandomHorizontalFlip RandomVerticalFlip
write gf.nn.augment.random_affine(x, degrees=…); Keras' factor is a share of 360 degrees
    RandomRotation
write gf.nn.augment.random_affine(x, translate=(across, down)), in shares of the size
    RandomTranslation
write gf.nn.augment.random_affine(x, scale=(low, high)), above 1 for larger images
    RandomZoom
write gf.nn.augment.random_affine(x, shear=…), in degrees
    RandomShear
write gf.nn.augment.color_jitter(x, brightness=…)
    RandomBrightness
write gf.nn.augment.color_jitter(x, contrast=…)
    RandomContrast
write gf.nn.augment.color_jitter(x, saturation=…)
    RandomSaturation
write gf.nn.augment.color_jitter(x, hue=…), where 1 is once around
    RandomHue
write gf.sum(x * gf.asarray([0.2989, 0.587, 0.114])[:, None, None], axis=-3, keepdims=True)
    Grayscale
write (x - mean) / std, with both of the shape (C, 1, 1) for images [N, C, H, W]
    Normalize
write gf.astype(gf.moveaxis(x, -1, -3), gf.float32) / 255
    ToTensor
write gf.astype(x, gf.float32) / 255
    ConvertImageDtype
write gf.nn.Sequential of gf.nn.augment.Augment(gf.nn.augment.random_flip), …, or call one by one
    Compose
not in graphfw: change the images before they are fed
    Random* AugMix AutoContrast ContrastLimitedAdaptiveHistogramEqualization Equalization Pipeline
    RandAugment Solarization MaxNumBoundingBoxes
not in graphfw: make indices of texts and categories before they are fed
    CategoryEncoding Discretization HashedCrossing Hashing IntegerLookup StringLookup
    TextVectorization
gf.onnx.load(path) loads models of other frameworks
    FlaxLayer JaxLayer TFSMLayer TorchModuleWrapper hub export InputSpec
a window is an array: gf.asarray(np.{name}(n)); gf.fft.hann_window is periodic
    hamming hanning kaiser blackman bartlett
a window is an array: gf.asarray(scipy.signal.get_window("kaiser", n))
    windows
    kaiser_window blackman_window bartlett_window
not in graphfw: SciPy's is gf.host_call(scipy.signal.{name}, x.type, x, pure=True)
    BadCoefficients CZT ShortTimeFFT StateSpace TransferFunction ZerosPolesGain ZoomFFT
    abcd_normalize argrelextrema argrelmax argrelmin band_stop_obj bessel besselap bilinear_zpk
    bode bsplines buttap butter buttord cheb1ap cheb1ord cheb2ap cheb2ord cheby1 cheby2
    check_COLA check_NOLA chirp choose_conv_method closest_STFT_dual_window coherence
    cont2discrete correlation_lags csd cspline1d cspline1d_eval cspline2d czt czt_points dbode
    decimate deconvolve detrend dfreqresp dimpulse dlsim dlti dstep ellip ellipap ellipord
    envelope filter_design filtfilt find_peaks find_peaks_cwt findfreqs fir_filter_design firls
    firwin firwin2 firwin_2d freqresp freqs freqs_zpk freqz freqz_sos freqz_zpk gammatone
    gauss_spline gausspulse get_window group_delay hilbert hilbert2 iircomb iirdesign iirfilter
    iirnotch iirpeak impulse invres invresz kaiser_atten kaiser_beta kaiserord lfilter
    lfilter_zi lfiltic lombscargle lp2bp lp2bp_zpk lp2bs lp2bs_zpk lp2hp lp2hp_zpk lp2lp
    lp2lp_zpk lsim lti lti_conversion ltisys max_len_seq medfilt medfilt2d minimum_phase
    order_filter peak_prominences peak_widths periodogram place_poles qspline1d qspline1d_eval
    qspline2d remez resample resample_poly residue residuez savgol_coeffs savgol_filter sawtooth
    sepfir2d signaltools sos2tf sos2zpk sosfilt sosfilt_zi sosfiltfilt sosfreqz spectral
    spectrogram spline spline_filter ss2tf ss2zpk step sweep_poly symiirorder1 symiirorder2
    tf2sos tf2ss tf2zpk unique_roots unit_impulse upfirdn vectorstrength waveforms wavelets
    welch wiener zoom_fft zpk2sos zpk2ss zpk2tf
write gf.fft.stft(x, window, hop)
    MelSpectrogram STFTSpectrogram
functions of signals are in gf.fft, and gf.convolve; others: gf.host_call(scipy.signal.…)
    signal
write session.restore(path), model.load_pytorch(session, path) or gf.onnx.load(path)
    load load_state_dict PyTorchFileReader
write session.restore(path), or gf.onnx.load(path)
    from_file deserialize loadtxt genfromtxt fromfile fromregex
write session.save(path), or gf.onnx.save
    save savez savez_compressed savetxt PyTorchFileWriter serialize serialization storage
set it for layers outside of graphs: gf.set_seed(…); else it is the session's: gf.Session(g, seed=…)
    manual_seed Rngs
the seed is the session's: gf.Session(g, seed=…)
    seed initial_seed get_rng_state set_rng_state Generator default_generator
    thread_safe_generator PRNGKey key quasirandom default_rng get_state set_state RandomState
    SeedSequence BitGenerator MT19937 PCG64 PCG64DXSM Philox SFC64
the session chooses the machine: gf.Session(g, executor=…)
    cuda device cpu mps xpu mtia accelerator get_device get_device_module set_default_device
    get_default_device backends Stream StreamObjType DeviceObjType Event AcceleratorError
    to_device device_put devices set_default_tensor_type has_lapack has_mkl has_openmp
    has_spectral is_vulkan_available compiled_with_cxx11_abi cpp cudnn*
the optimiser clips: gf.optim.Adam(lr, clip_norm=1.0), or clip_value=1.0
    clip_grad_norm_ clip_grad_norm clip_grad_value_
set the precision of a session: gf.Session(g, precision="mixed-bf16")
    amp *autocast* get_float32_matmul_precision set_float32_matmul_precision
set it of a session: gf.Session(g, threads=…), or gf.model_session_options(threads=…)
    *_num_threads *_num_interop_threads set_flush_denormal
runs give equal bits whatever the number of threads: docs/numbers.md
    *deterministic*
write with gf.model_session_options(check_finite=True): around it; gf.Session has it, too
    *anomaly* debug_nans debug_infs
add the gradients of all processes: gf.distributed.all_reduce(gradient, "data"); see distributed.md
    DataParallel DistributedDataParallel FullyShardedDataParallel fully_shard parallel pmap
    shard_map sharding
write mesh = gf.distributed.Mesh(data=-1), with mesh.rank and mesh.size
    init_process_group get_rank get_world_size init_device_mesh DeviceMesh make_mesh
write gf.distributed.all_reduce(x, axis_name); op="max" and op="min" are there, too
    psum pmean pmax pmin all_reduce
write gf.distributed.reduce_scatter(x, axis_name)
    psum_scatter reduce_scatter_tensor reduce_scatter
write gf.distributed.all_gather(x, axis_name)
    all_gather_into_tensor all_gather
write gf.distributed.all_to_all(x, axis_name, split_axis=…, concat_axis=…)
    all_to_all_single all_to_all
not in graphfw: runs with collectives wait for each other
    barrier destroy_process_group
take the rows of mesh.shards("data", 8)
    DistributedSampler
not in graphfw: start processes by mpiexec, and connect them by gf.distributed
    multiprocessing futures Future fork wait
write @gf.function, or a graph and gf.Session
    Script* compiler fx
see python -m graphfw, and docs/debugging.md
    profiler monitor utils library package hub
write gf.FunctionMode, or a method __graphfw_function__: docs/array-api.md
    overrides
measure a plan: plan.profile(…)
    ThroughputBenchmark Benchmark*
write gf.asarray(values, dtype=…)
    *Tensor fromiter fromstring frombuffer empty_strided empty_permuted empty_quantized matrix
    asmatrix bmat
convert: x.numpy()
    to_dlpack memmap core array2string array_repr array_str asarray_chkfinite tobytes ndarray
the dims of a tensor are x.shape, its elements x.size
    Size SymInt Sym* sym_*
write isinstance(x, gf.Tensor)
    is_tensor
ask the dtype: x.dtype, gf.isdtype(x.dtype, kind)
    is_complex is_floating_point is_signed is_conj is_neg isreal iscomplex isscalar
    issubdtype isfortran min_scalar_type mintypecode typename ScalarType sctypeDict typecodes
    generic number integer signedinteger unsignedinteger inexact floating complexfloating
    flexible character str_ bytes_ void object_ record datetime64 timedelta64 dtypes
    is_distributed is_same_size is_nonzero is_storage iterable complex32 chalf complex256
    clongdouble float128
write its name, as in gf.astype(x, "int4"): numbers of 8 bits and less are kept, not computed with
    int2 int4 uint2 uint4 float4_e2m1fn float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz
    float8_e8m0fnu
not in graphfw: sessions compute in 16 or 32 bits, gf.Session(g, precision=…)
    *quantize* quantization quantizable qat intrinsic q_* q[a-z]* [qu]*int[0-9x]* bits* float8_*
    float6_* float4_* int[0-9] bit int_repr fbgemm_* choose_qparams*
    fused_moving_avg_obs_fake_quant ao scaled_matmul
not in graphfw: tensors are dense; gf.take and gf.scatter_add go by indices
    sparse sparse_* *_sparse* spmm smm hsmm dsmm hspmm saddmm sspaddmm crow_indices*
    col_indices* ccol_indices* row_indices* indices* values_copy nested jagged layout strided
tensors don't change, and share no visible memory: leave it out
    copy clone as_strided* *_format memory_format resolve_conj resolve_neg shares_memory
    may_share_memory copyto nditer nested_iters copy_ lib alias_copy channels_last
    channels_last_3d
True and False are Python's
    True_ False_
write a slice, an index or a tuple of them: x[:, 1], x[None]
    index_exp s_ slice_* flatiter ndenumerate ndindex
write gf.concat, gf.stack or gf.arange
    c_ r_
write gf.meshgrid, or gf.arange with new axes
    mgrid ogrid ix_ indices diag_indices_from mask_indices tril_indices_from
    triu_indices_from fromfunction combinations
write x.at[key].set(values), or .add, .multiply, .max and .min instead of .set
    scatter_reduce masked_scatter index_reduce diagonal_scatter select_scatter slice_scatter
write gf.segment_sum(x, segment_ids, num_segments), or gf.segment_mean, gf.segment_max
    segment_reduce
write gf.nonzero(x)
    nonzero_static
write gf.unique_counts(x): the value with the largest count
    mode
write gf.argsort of the last key, and of each other in the order so far: it is stable
    lexsort
write x[1:] != x[:-1], which is true where a new value begins
    unique_consecutive
write a slice: x[first:last], with indices from gf.nonzero(x)
    trim_zeros
write gf.bincount(row * columns + column), with rows and columns from gf.digitize(x, edges)
    histogramdd histogram2d
write gf.unique_values and gf.isin
    setxor1d
write gf.vmap(fn), or gf.map(fn, xs)
    vectorize apply_along_axis apply_over_axes frompyfunc ufunc
write x + y of coefficients, the shorter filled up by gf.pad with zeros in front
    polyadd polysub
write gf.linalg.eigvals of the companion matrix of the coefficients
    roots
a polynomial is the vector of its coefficients, highest first: gf.polyval(v, x)
    poly poly1d polydiv polynomial
write gf.arange(start, stop, step), which leaves stop out; torch.range includes it
    range
write gf.einsum(equation, x, y): it finds the order of the products
    einsum_path
write gf.linalg: solve, lstsq, qr, svd, eigh, slogdet
    lu_solve lu_unpack lobpcg geqrf orgqr ormqr ldl_factor triangular_solve svd_lowrank
    pca_lowrank symeig matrix_inverse_pth_root power_iteration
not in graphfw: convert with numpy(), or call Python from the graph: gf.host_call
    hash_tensor mvlgamma gcd lcm frexp emath base_repr binary_repr format_float_positional
    format_float_scientific datetime_as_string datetime_data busday_count busday_offset
    busdaycalendar is_busday char rec recarray strings ma ctypeslib typing test require isnat
    bitwise_count packbits unpackbits
write gf.random: uniform, normal, exponential
    binomial multi_normal
printing is NumPy's: np.set_printoptions
    *printoptions
numbers are computed as they are; gf.Session(g, check_finite=True) finds NaN
    errstate seterr geterr seterrcall geterrcall getbufsize setbufsize
write gf.affine_grid(theta, size)
    affine_grid_generator
write gf.concat of matrices that gf.pad has filled up with zeros
    block_diag
write gf.layer_norm, gf.batch_norm, gf.group_norm
    batch_norm_* native_*_norm native_norm
errors are in gf.errors
    exceptions ComplexWarning
Euler's constant is 0.5772156649015329
    euler_gamma
see gf.__version__
    version torch_version show_config show_runtime get_include info little_endian f2py
    get_file_path
not in graphfw: an internal of PyTorch
    miopen_* mkldnn_* *Type *Storage *StorageBase StorageBase rnn_* *_torch_function*
    BroadcastingList* *_notes *_MODES scaled_*mm grouped_mm AVG SUM AggregationType AliasDb
    Argument ArgumentSpec Block BufferDict CallStack Capsule Code CompilationUnit
    CompleteArgumentSpec ConcreteModule* DeepCopyMemoTable DeserializationStorage*
    DisableTorchFunction* DispatchKey* ErrorReport ExcludeDispatchKeyGuard ExecutionPlan
    FatalError FileCheck FunctionSchema Gradient GraphExecutorState IODescriptor JITException
    LiteScriptModule *Logger LoggerBase Node OperatorInfo PRIVATE_OPS
    SerializationStorageContext StaticModule Tag TracingState USE_* Use Value assert_int_or_pair
    boolean_dispatch builtins classes classproperty common_type* factory_kwargs get_scaled_dot*
    import_ir_module* merge_type* np parameter parse_* per_channel_* per_tensor_*
    prepare_multiprocessing* profiler_* qscheme return_types unify_type_list torch types
    is_warn_always_enabled set_warn_always math ScalingType SwizzleType scaled_dot_general
    handle_torch_function resize_as_*
write a loop of calls of a @gf.function that has optimizer.minimize(loss), or gf.train.Trainer
    fit train_on_batch
write gf.broadcast_arrays(x, y), or gf.broadcast_to(x, shape)
    broadcast
write x.reshape(…)
    view_copy
write gf.update(variable, value), and fetch that
    zero_
write gf.vector_norm(x[:, None] - x, axis=-1): all pairs
    pdist
write gf.resize(x, scales=…, mode="nearest"), or "linear"
    upsample_nearest upsample_bilinear
write gf.sort of the real parts, or of the absolute values
    sort_complex
write gf.where(condition, x, y)
    piecewise
write gf.real(x)
    real_if_close
write gf.take(x, i, axis=axis), or gf.where(condition, x, y), nested, to select
    select
"""
