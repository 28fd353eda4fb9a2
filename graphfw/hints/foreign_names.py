"""Names of other frameworks for what graphfw has under another name.

Before the colon is graphfw's name, and after it the others'.
"""

from __future__ import annotations

CALLED = """
# Functions of elements.
gf.abs: absolute fabs
gf.acos: arccos
gf.acosh: arccosh
gf.asin: arcsin
gf.asinh: arcsinh
gf.atan: arctan
gf.atan2: arctan2
gf.atanh: arctanh
gf.bitwise_invert: invert bitwise_not
gf.bitwise_left_shift: left_shift
gf.bitwise_right_shift: right_shift
gf.clip: clamp
gf.conj: conjugate
gf.digamma: psi
gf.divide: true_divide div
gf.equal: eq
gf.greater: gt
gf.greater_equal: ge
gf.hardsigmoid: hard_sigmoid
gf.hardswish: hard_swish hard_silu
gf.hardtanh: hard_tanh
gf.less: lt
gf.less_equal: le
gf.lgamma: gammaln
gf.log_sigmoid: logsigmoid log_expit
gf.maximum: clamp_min sym_max
gf.minimum: clamp_max sym_min
gf.multiply: mul
gf.negative: neg
gf.not_equal: ne
gf.pow: power
gf.remainder: mod
gf.round: rint around
gf.sigmoid: expit
gf.sign: sgn
gf.silu: swish
gf.special.gammainc: igamma
gf.special.gammaincc: igammac
gf.special.i0: modified_bessel_i0
gf.special.i1: modified_bessel_i1
gf.special.j0: bessel_j0
gf.special.j1: bessel_j1
gf.special.y0: bessel_y0
gf.special.y1: bessel_y1
gf.softsign: soft_sign
gf.stop_gradient: detach
gf.subtract: sub
gf.trunc: fix

# Tensors and their shapes.
gf.asarray: tensor array as_tensor asanyarray from_numpy convert_to_tensor scalar_tensor
    asarray_chkfinite ascontiguousarray asfortranarray
gf.astype: cast
gf.broadcast_arrays: broadcast_tensors
gf.broadcast_to: expand
gf.concat: cat concatenate Concatenate
gf.expand_dims: unsqueeze
gf.full: fill
gf.moveaxis: movedim
gf.pad: constant_pad_nd
gf.swapaxes: swapdims
gf.split: chunk array_split tensor_split
gf.unstack: unbind
gf.vstack: row_stack

# Reductions, sorting, indexing.
gf.cumulative_max: cummax
gf.cumulative_min: cummin
gf.cumulative_prod: cumprod
gf.cumulative_sum: cumsum
gf.index_set: index_put
gf.repeat: repeat_interleave
gf.take_along_axis: take_along_dim
gf.topk: top_k
gf.trapezoid: trapz
gf.unique_values: unique

# Products.
gf.matmul: mm bmm mv matvec
gf.outer: ger
gf.linalg.inv: inverse
gf.linalg.pinv: pinverse

# Images and sequences.
gf.avg_pool: avg_pool1d avg_pool2d avg_pool3d
gf.conv: conv1d conv2d conv3d convolution
gf.conv_transpose: conv_transpose1d conv_transpose2d conv_transpose3d
gf.grid_sample: grid_sampler
gf.max_pool: max_pool1d max_pool2d max_pool3d
gf.scaled_dot_product_attention: Attention

# Transformations, graphs, dtypes.
gf.bool: bool_ BoolTensor
gf.checkpoint: remat
gf.complex64: cfloat csingle
gf.complex128: cdouble complex_
gf.DType: dtype
gf.float16: half
gf.float32: float single
gf.float64: double float_ longdouble
gf.function: jit compile
gf.host_call: pure_callback
gf.int8: char
gf.int16: short
gf.int32: int intc
gf.int64: long int_ intp longlong
gf.make_graph: make_jaxpr
gf.placeholder: Input InputLayer
gf.result_type: promote_types common_type
gf.uint8: byte ubyte
gf.uint16: ushort
gf.uint32: uintc
gf.uint64: uint ulong ulonglong uintp
gf.MemoryLimitError: OutOfMemoryError

# Metrics.
gf.nn.metrics.accuracy: accuracy_score CategoricalAccuracy SparseCategoricalAccuracy
gf.nn.metrics.f1: F1Score f1_score
gf.nn.metrics.iou: IoU MeanIoU jaccard_score
gf.nn.metrics.precision: precision_score
gf.nn.metrics.r2: R2Score r2_score
gf.nn.metrics.recall: recall_score
gf.nn.metrics.roc_auc: AUC roc_auc_score
gf.nn.metrics.topk_accuracy: TopKCategoricalAccuracy SparseTopKCategoricalAccuracy

# Layers.
gf.nn.BatchNorm: BatchNormalization SyncBatchNorm
gf.nn.GroupNorm: GroupNormalization
gf.nn.LayerNorm: LayerNormalization
gf.nn.RMSNorm: RMSNormalization
gf.nn.Linear: Dense
gf.nn.Embedding: Embed
gf.nn.MultiHeadAttention: MultiheadAttention SelfAttention MultiHeadDotProductAttention
gf.nn.LocalResponseNorm: CrossMapLRN2d
gf.nn.Module: Layer Model Container
gf.nn.RNN: SimpleRNN
gf.nn.RNNCell: SimpleRNNCell
gf.nn.Upsample: UpsamplingNearest2d UpsamplingBilinear2d UpSampling1D UpSampling2D UpSampling3D
    Resizing
gf.nn.SpectralNorm: spectral_norm SpectralNormalization
gf.nn.WeightNorm: weight_norm
gf.nn.ZeroPad1d: ZeroPadding1D
gf.nn.ZeroPad2d: ZeroPadding2D
gf.nn.ZeroPad3d: ZeroPadding3D
gf.Variable: Parameter Buffer Param

# Training and models.
gf.models.tokenizer: AutoTokenizer
gf.set_seed: seed_everything set_random_seed
gf.tree.flatten: tree_flatten
gf.tree.leaves: tree_leaves
gf.tree.map: tree_map
gf.tree.structure: tree_structure
gf.tree.unflatten: tree_unflatten
gf.testing.check_gradients: gradcheck gradgradcheck check_grads
gf.train.find_learning_rate: lr_find Tuner
gf.train.MLflow: MLFlowLogger
gf.train.TensorBoard: TensorBoardLogger
gf.train.Wandb: WandbLogger

# Augmentations.
gf.nn.augment.color_jitter: RandomColorJitter

# Losses.
gf.nn.bce: BCELoss binary_cross_entropy BinaryCrossentropy
gf.nn.binary_focal: sigmoid_focal_loss BinaryFocalCrossentropy binary_focal_crossentropy
gf.nn.bce_with_logits: BCEWithLogitsLoss binary_cross_entropy_with_logits
    sigmoid_binary_cross_entropy
gf.nn.cosine_embedding: CosineEmbeddingLoss
gf.nn.cross_entropy: CrossEntropyLoss softmax_cross_entropy
    softmax_cross_entropy_with_integer_labels safe_softmax_cross_entropy CategoricalCrossentropy
    SparseCategoricalCrossentropy
gf.nn.ctc: CTCLoss
gf.nn.focal: CategoricalFocalCrossentropy categorical_focal_crossentropy
gf.nn.gaussian_nll: GaussianNLLLoss
gf.nn.huber: HuberLoss huber_loss
gf.nn.kl_div: KLDivLoss kl_divergence
gf.nn.l1: L1Loss l1_loss MeanAbsoluteError
gf.nn.margin_ranking: MarginRankingLoss
gf.nn.mse: MSELoss mse_loss MeanSquaredError
gf.nn.multi_margin: MultiMarginLoss
gf.nn.nll: NLLLoss NLLLoss2d nll_loss
gf.nn.poisson_nll: PoissonNLLLoss
gf.nn.smooth_l1: SmoothL1Loss smooth_l1_loss
gf.nn.triplet_margin: TripletMarginLoss

# Initial values.
gf.nn.init.truncated_normal: trunc_normal_ TruncatedNormal
gf.nn.init.he_normal: kaiming_normal
gf.nn.init.he_uniform: kaiming_uniform
gf.nn.init.xavier_normal: glorot_normal GlorotNormal
gf.nn.init.xavier_uniform: glorot_uniform GlorotUniform
gf.nn.init.identity: eye_ IdentityInitializer
gf.nn.init.orthogonal: OrthogonalInitializer

# Matrices.
gf.convolve: fftconvolve oaconvolve
gf.linalg.lu: lu_factor
gf.linalg.matrix_exp: expm

# Random numbers.
gf.dropout: native_dropout
gf.random.normal: standard_normal
gf.random.cauchy: standard_cauchy
gf.random.uniform: random_sample
gf.random.permutation: randperm shuffle
gf.random.exponential: standard_exponential
gf.random.randint: integers

# Optimisers and their options.
gf.optim.LossScale: GradScaler
gf.optim.ReduceOnPlateau: ReduceLROnPlateau
gf.optim.schedules.constant: constant_schedule ConstantLR
gf.optim.schedules.cosine: CosineAnnealingLR cosine_decay_schedule CosineDecay
    warmup_cosine_decay_schedule
gf.optim.schedules.cosine_restarts: CosineDecayRestarts
gf.optim.schedules.exponential: ExponentialLR exponential_decay ExponentialDecay
gf.optim.schedules.join: join_schedules
gf.optim.schedules.linear: LinearLR linear_schedule
gf.optim.schedules.one_cycle: OneCycleLR cosine_onecycle_schedule linear_onecycle_schedule
gf.optim.schedules.piecewise: MultiStepLR piecewise_constant_schedule PiecewiseConstantDecay
gf.optim.schedules.polynomial: PolynomialLR polynomial_schedule PolynomialDecay
gf.optim.schedules.step_decay: StepLR
gf.optim.schedules.warmup: warmup_constant_schedule
"""
