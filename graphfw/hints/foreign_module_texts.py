"""Names that users look for in one module of graphfw: these texts go before all others there.

The forms are those of `foreign_texts`.
"""

from __future__ import annotations

DISTRIBUTED_TEXTS = """
write mesh = gf.distributed.Mesh(data=-1), with mesh.rank and mesh.size, and gf.Graph(mesh=mesh)
    init initialize process_index process_count local_rank rank world_size is_initialized
"""

AUTOGRAD_TEXTS = """
write @gf.custom_gradient above a function, which returns its result and the rule of its gradient
    Function
"""
"""Names of PyTorch's module `autograd` that graphfw has for something else."""

TOP_TEXTS = """
write print(model), or model.summary(("batch", 64)) with the shape of an input
    summary
write @gf.custom_gradient above a function, which returns its result and the rule of its gradient
    custom_vjp custom_jvp custom_derivatives
write gf.random.categorical(gf.log(p), shape=…); counts are gf.random.multinomial(count, p)
    multinomial
"""

NN_TEXTS = """
clip by gf.optim.Adam(lr, clip_norm=…); pass lengths= to a GRU; gf.nn.WeightNorm is a layer
    utils
write a gf.nn.Module around the layer, as gf.nn.WeightNorm(layer) and gf.nn.SpectralNorm(layer)
    parametrizations parametrize
write gf.nn.Conv1d, gf.nn.Conv2d or gf.nn.Conv3d, which take in_channels first
    Conv
"""

RANDOM_TEXTS = """
leave it out: draws have no keys, and a name pins a draw, as in gf.random.normal(shape, name=…)
    split fold_in clone key_data wrap_key_data key_impl
write gf.random.multinomial(count, p), with the chances of all classes
    binomial
"""

ONNX_TEXTS = """
write gf.onnx.save(graph, fetches, path); of a model: with model.session.graph: \
y = model(gf.placeholder(shape)), and \
gf.onnx.save(model.session.graph, y, path, session=model.session)
    export dynamo_export save_model
write gf.onnx.load(path)
    load_model load_from_string load_model_from_string
write gf.Session(gf.onnx.load(path)), or gf.onnx.run(path, feeds)
    InferenceSession backend
write python -m graphfw onnx check model.onnx
    checker
that is of the package onnx: import onnx
    helper numpy_helper shape_inference compose version_converter ModelProto TensorProto
"""

TREE_TEXTS = """
write functools.reduce(fn, gf.tree.leaves(tree))
    reduce reduce_associative
write all(gf.tree.leaves(tree))
    all
not in graphfw: functions of trees see the leaves without their paths
    flatten_with_path leaves_with_path map_with_path
not in graphfw: write it by gf.tree.map, gf.tree.leaves and gf.tree.unflatten
    broadcast transpose
nodes are tuples, lists and dicts, and everything else is a leaf
    static
"""

OPTIM_TEXTS = """
set weight_decay=, clip_norm=, clip_value= of the optimiser
    clip_by_block_rms adaptive_grad_clip clip_grad
    per_example_layer_norm_clip per_example_global_norm_clip
write optimizer.minimize(loss) in a @gf.function, or fetch it: session.run([loss, train])
    apply_updates incremental_update
write optimizer = gf.optim.MultiSteps(gf.optim.Adam(lr), k), and a run for each batch
    apply_every microbatch microbatching
write gf.update(average, 0.99 * average + 0.01 * variable), and fetch that
    periodic_update update_moment update_infinity_moment update_moment_per_elem_norm
    bias_correction
write optimizer = gf.optim.EMA(gf.optim.Adam(lr)), or SWA, and optimizer.averaged(output)
    swa_utils measure_with_ema swap_in_optimizer_params_and_state
write model.freeze("encoder"), or say what to train: optimizer.minimize(loss, parameters)
    freeze masked selective_transform set_to_zero conditionally_mask conditionally_transform
write minimize(loss, [{"parameters": body, "optimizer": gf.optim.SGD(0.1)}, {"parameters": head}])
    multi_transform partition MultiOptimizer OptimizerMap
the rate may be a tensor, which a session feeds or a variable holds
    inject_hyperparams inject_stateful_hyperparams
gf.Session(g, check_finite=True) stops at NaN; gf.optim.LossScale skips such steps
    apply_if_finite skip_not_finite skip_large_updates
not in graphfw: add the noise to gf.grad's gradients, and give them to apply_gradients
    perturbations
write gf.tree.map(fn, tree), of nested tuples, lists and dicts
    tree_utils tree_map_params projections second_order
write (prediction - target) ** 2 / 2
    l2_loss
write (prediction - target) ** 2
    squared_error
set label_smoothing= of gf.nn.cross_entropy
    smooth_labels
write gf.normalize, gf.vector_norm
    safe_norm safe_root_mean_squares
write step + 1
    safe_increment safe_int32_increment
an optimiser keeps its state as variables: optimizer.variables
    *State *Params ShouldSkipUpdateFunction TransformInitFn TransformUpdate* ZoomLinesearchInfo
    MaskedNode ApplyEvery
each optimiser with lr=1.0 is a member of a chain: gf.optim.chain(gf.optim.RMSprop(1.0), lr=0.1)
    scale_by_*
write gf.optim.chain(member, …, lr=0.1), of optimisers and those of gf.optim.transforms
    named_chain GradientTransformation GradientTransformationExtraArgs
an optimiser is one rule with options: gf.optim.AdamW(lr, clip_norm=…); see docs/layers.md
    scale_gradient stateless stateless_with_tree_map with_extra_args_support contrib
    keep_params_nonnegative zero_nans snapshot WrappedSchedule init_empty_state assignment
    EPOCH_DEPRECATION_WARNING experimental value_and_grad_from_state flatten identity
    monitor
not in graphfw: write its rule as an optimiser (docs/adding-an-optimiser.md)
    ASGD Rprop SparseAdam Ftrl adabelief adan fromage noisy_sgd novograd
    optimistic_adam optimistic_adam_v2 optimistic_gradient_descent rprop sign_sgd signum
    sm3 yogi normalize_by_update_norm
not in graphfw: a schedule is any function of the number of updates made
    ChainedScheduler InverseTimeDecay LambdaLR MultiplicativeLR piecewise_interpolate_schedule
    LearningRateSchedule
write gf.optim.schedules.cosine_restarts(lr, steps), or gf.optim.schedules.join of cosines
    sgdr_schedule
write gf.optim.schedules.warmup(gf.optim.schedules.exponential(lr, factor, every), steps)
    warmup_exponential_decay_schedule
"""
"""Names that users of optimisers look for; in `gf.optim` these texts go before all others."""

LINALG_TEXTS = """
write gf.linalg.inv of gf.reshape(x, (n, n)), and gf.reshape
    tensorinv
write gf.linalg.solve of gf.reshape(x, (n, n)), and gf.reshape
    tensorsolve
write gf.linalg.solve_triangular twice, with the factor and with its adjoint
    cho_solve cho_solve_banded
write gf.linalg.cholesky(x)
    cho_factor
"""
