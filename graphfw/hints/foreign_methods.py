"""Methods and attributes of other frameworks' tensors, models, optimisers, sessions and graphs.

The forms are those of `foreign_calls` and `foreign_texts`. What is not here is looked for there.
"""

from __future__ import annotations

TENSOR_CALLS = """
H(x): gf.conj(x).mT
mH(x): gf.conj(x).mT
assign(variable, y): gf.update(variable, y)
assign_add(variable, y): gf.update(variable, variable + y)
assign_sub(variable, y): gf.update(variable, variable - y)
bfloat16(x): x.astype(gf.bfloat16)
bool(x): x.astype(gf.bool)
byte(x): x.astype(gf.uint8)
cdouble(x): x.astype(gf.complex128)
cfloat(x): x.astype(gf.complex64)
char(x): x.astype(gf.int8)
compress(x, mask): x[mask]
compress(x, mask: list, axis): gf.take(x, gf.nonzero(gf.asarray(mask))[0], axis=axis)
compress(x, mask, axis): gf.take(x, gf.nonzero(mask)[0], axis=axis)
dim(x): x.ndim
dot(x, y): x @ y
double(x): x.astype(gf.float64)
expand(x, *shape): gf.broadcast_to(x, (*shape,))
equal(x, y): gf.all(x == y)
eval(x): session.run(x)
expand_as(x, y): gf.broadcast_to(x, y.shape)
fill(x, value): gf.full_like(x, value)
float(x): x.astype(gf.float32)
get_shape(x): x.shape
half(x): x.astype(gf.float16)
initial_value(x): x.initial
int(x): x.astype(gf.int32)
itemsize(x): x.dtype.itemsize
long(x): x.astype(gf.int64)
nbytes(x): x.type.nbytes
median(x, dim=None, keepdim=None): \
gf.quantile(x, 0.5, axis=dim, keepdims=keepdim, method="lower")
ndimension(x): x.ndim
nelement(x): x.size
new_tensor(x, values): gf.asarray(values, dtype=x.dtype)
permute(x, axes: list): gf.permute_dims(x, axes)
permute(x, *axes): gf.permute_dims(x, (*axes,))
permute(x, *, axes): gf.permute_dims(x, axes)
repeat(x, n: number, m: number, *rest: number): gf.tile(x, (n, m, *rest))
repeat(x, sizes: list): gf.tile(x, sizes)
repeat(x, n, *, axis): gf.repeat(x, n, axis=axis)
reshape_as(x, y): x.reshape(y.shape)
select(x, axis, i): gf.take(x, i, axis=axis)
short(x): x.astype(gf.int16)
sum_to_size(x, axes): gf.sum(x, axis=axes)
to(x, dtype: dtype): x.astype(dtype)
tolist(x): x.numpy().tolist()
type_as(x, y): x.astype(y.dtype)
unflatten(x, axis, sizes): x.reshape(*x.shape[:axis], *sizes, *x.shape[axis:][1:])
view(x, shape: list): x.reshape(shape)
view(x, *shape): x.reshape(*shape)
t_(x): x.mT
view_as(x, y): x.reshape(y.shape)
where(x, condition, y): gf.where(condition, x, y)
"""

VALUE_CALLS = """
type(x): x.type
type(x, dtype): x.astype(dtype)
"""
"""Calls of what is no method here, but a value."""

SET_CALLS = """
shape(x): x.reshape(shape)
dtype(x): x.astype(dtype)
"""
"""The expressions to write for values that can't be set."""

OPTIMIZER_SET_TEXTS = """
make it with lr=rate, where rate = gf.Variable(1e-3, trainable=False): rate.assign(1e-4) changes it
    lr learning_rate
make another optimiser, with {name}=…
    *
"""
"""Texts for options of an optimiser that are set; `*` stands for any other."""

CONFIG_SET_TEXTS = """
write config = dataclasses.replace(config, {name}=…), before the model is made
    *
"""

TENSOR_TEXTS = """
write gf.grad(loss, xs), or optimizer.minimize(loss)
    backward grad grad_fn retain_grad retains_grad register_hook
    register_post_accumulate_grad_hook
gradients exist for every tensor: gf.grad(loss, [x]); model.freeze() keeps variables from training
    is_leaf requires_grad requires_grad_
leave it out: tensors don't change, so none needs a copy
    clone copy base
leave it out: tensors don't change; write x.numpy() for an array, and variable.assign(array)
    data
tensors have no strides and no order in memory: leave it out
    contiguous dim_order grad_dtype new_empty_strided output_nr volatile is_set_to to_dense
    to_mkldnn to_padded_tensor dense_dim is_mkldnn is_nested map2_ module_load reinforce
    resize_as is_contiguous is_coalesced coalesce strides stride storage_offset flags set_ setflags
    storage untyped_storage share_memory_ is_shared pin_memory is_pinned data_ptr const_data_ptr
    storage_type resize resize_ element_size byteswap ctypes getfield setfield
x itself holds the values; gf.argmax(x, axis=axis) or gf.argsort(x, axis=axis) says where they are
    values indices
write gf.where for elements, or gf.stack of slices; gf.unfold takes patches of images
    unfold
write variable.numpy(), and variable.assign(array); in a graph session[variable] has the contents
    value read_value sparse_read load
what a variable begins with is an argument: gf.Variable(initial); sessions set it
    initializer initialized_value
write gf.update(variable, variable.at[key].set(values)), or .add, and fetch that
    scatter_update count_up_to
write gf.assert_shape(x, shape)
    set_shape
write x itself: it can be a key of a dict
    ref
write x[key], with one index for each dim
    gather_nd
write str(g), which gf.parse reads
    from_proto to_proto
leave it out: results of session.run are there when it returns
    block_until_ready copy_to_host_async
leave it out: a session computes on one machine
    addressable_data addressable_shards committed global_shards is_fully_addressable
    is_fully_replicated sharding
leave it out: the session chooses the machine, gf.Session(g, executor=…)
    cpu cuda xpu is_cuda is_cpu is_mps is_xpu get_device
    ipu is_ipu is_maia is_meta is_mtia is_vulkan is_xla record_stream
write x.astype(dtype); the session chooses the machine: gf.Session(g, executor=…)
    to type
write gf.random.categorical(gf.log(p), shape=…); counts are gf.random.multinomial(count, p)
    multinomial
PyTorch's is gf.tile(x, sizes), NumPy's is gf.repeat(gf.flatten(x), n)
    repeat
write x.node, which has op, inputs and loc
    op consumers
write variable.assign(value); in a graph or function gf.update(variable, value), an update
    assign copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ geometric_
    cauchy_ log_normal_
convert: x.numpy()
    as_subclass new dump dumps tofile tobytes
"""

MODULE_TEXTS = """
read layer.p: the probability of being dropped
    rate
the session chooses the machine: gf.Session(g, executor=…)
    to cuda cpu xpu ipu mtia to_empty share_memory
set the precision of a session: gf.Session(g, precision="mixed-bf16")
    half bfloat16 float double type quantize dtype_policy
leave it out: gradients are made in the graph, and kept nowhere
    zero_grad
write module.freeze(), or module.unfreeze()
    requires_grad_ trainable
write a loop of calls of a @gf.function that has optimizer.minimize(loss), or gf.train.Trainer
    fit train_on_batch train_step make_train_function training_step
write model(x, training=False), in a graph session.run(model(x, training=False), feeds)
    predict predict_on_batch predict_step evaluate test_on_batch test_step make_predict_function
    validation_step
write optimizer.minimize(loss) in a @gf.function, or in a graph for session.run
    compile compile_from_config metrics jit_compile configure_optimizers
write adapters.merge(session), of adapters = gf.nn.lora(model, …)
    merge_and_unload
write gf.nn.generate(model, ids, 20)
    generate
write gf.models.from_pretrained(folder)
    from_pretrained
write model.save_pytorch(path), in a graph model.save_pytorch(session, path)
    save_pretrained
write model(x): the variables are the model's
    bind init
write model.save(path), and model.load(path); in a graph model.save(session, path)
    save_weights load_weights load_own_variables save_own_variables
write model.state_dict(), and model.load_state_dict(state); in a graph model.state_dict(session)
    get_weights set_weights get_state_tree set_state_tree
write gf.onnx.save
    export
write gf.nn.generate(model, tokens, max_new_tokens)
    generate
write model.save_pytorch(session, path, names=model.names)
    save_pretrained
write model.parameters()
    trainable_weights trainable_variables
write model.variables()
    weights
write model.buffers()
    named_buffers non_trainable_weights non_trainable_variables
write module.name = gf.Variable(value, trainable=False): saved states have it, optimisers leave it
    register_buffer
assign a gf.Variable to an attribute, with trainable=False for what is not trained
    register_parameter add_weight add_variable
assign the module to an attribute, or write add_module(name, module); a Sequential has append
    register_module add pop
write forward
    call build compute_output_shape
write a Module around it, whose forward changes the arguments
    register_forward_pre_hook
gf.grad(loss, output) is the gradient; register_forward_hook with gf.custom_gradient changes it
    register_full_backward_hook register_full_backward_pre_hook register_backward_hook
change the dict that state_dict(session) returns, or that load_state_dict takes
    register_state_dict_post_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_state_dict_pre_hook
write for module in model.modules(): …
    apply
write dict(model.named_modules())[path], or dict(model.named_parameters())[path]
    get_submodule get_parameter get_buffer set_submodule get_layer get_extra_state set_extra_state
write model.children()
    layers
write sum(v.size for v in model.parameters()), or print(model)
    count_params num_parameters print_trainable_parameters
add losses up: loss = gf.nn.cross_entropy(logits, y) + 0.01 * penalty
    add_loss losses compute_loss stateless_compute_loss
return it from a @gf.function, or fetch it: session.run([loss, accuracy, train], feeds)
    log add_metric compute_metrics get_metrics_result metrics_names metrics_variables reset_metrics
write gf.parse and print(g), or gf.onnx.load and gf.onnx.save
    from_config get_config build_from_config get_build_config get_compile_config to_json
a layer is described once, and computed by sessions
    run_eagerly make_test_function rematerialized_call stateless_call symbolic_call T_destination
    call_super_init dump_patches torch_params compute_mask supports_masking compute_output_spec
ask the tensors: x.shape, x.dtype
    dtype compute_dtype variable_dtype input input_dtype input_spec output
not in graphfw: sessions compute in 16 or 32 bits, gf.Session(g, precision=…)
    quantization_mode quantized_build quantized_call get_quantization_layer_structure
"""

OPTIMIZER_TEXTS = """
write optimizer.minimize(loss) in a @gf.function, or apply_gradients(zip(grads, parameters))
    update apply
write optimizer.minimize(loss) in a @gf.function, or fetch it: session.run([loss, train], feeds)
    step register_step_post_hook register_step_pre_hook stateless_apply build
leave it out: gradients are made in the graph, and kept nowhere
    zero_grad
write gf.optim.LossScale(optimizer)
    scale_loss
write optimizer.learning_rate(), a tensor to return or to fetch
    get_lr get_last_lr
write gf.optim.Adam(lr, clip_norm=…): options are fields, and the state is variables
    from_config get_config set_weights add_variable add_variable_from_reference
    add_optimizer_variables assign assign_add assign_sub OptimizerPostHook OptimizerPreHook
    profile_hook_step update_step
groups go to minimize(loss, [{"parameters": …, "lr": …}]); a rate that changes is a gf.Variable
    param_groups add_param_group
leave it out: the state is made when the optimiser is first used
    init
its state is variables, optimizer.variables, which train_step.session.save(path) has
    save load
    state state_dict load_state_dict register_state_dict_post_hook register_state_dict_pre_hook
    register_load_state_dict_post_hook register_load_state_dict_pre_hook save_own_variables
    load_own_variables
the number of updates is a variable: optimizer.variables[0]
    iterations
write gf.update(average, 0.99 * average + 0.01 * variable), and fetch that
    finalize_variable_values exclude_from_weight_decay
"""

SCHEDULE_TEXTS = """
leave it out: the optimiser counts its updates, and asks the schedule for the rate of each
    step
write optimizer.learning_rate(), a tensor to return or to fetch; of a number, schedule(number)
    get_lr get_last_lr
the state of a schedule is the number of updates, which is the optimiser's: session.save(path)
    state_dict load_state_dict
"""

SESSION_TEXTS = """
write session.run([loss, train], feeds) for each batch, in a loop of your own
    fit step train train_on_batch
write session.run(model(x, training=False), feeds)
    predict predict_on_batch evaluate eval
write session.run(fetches, feeds)
    call forward run_with_ort_values run_with_ortvaluevector
write session.save(path), and session.restore(path)
    load save_weights load_weights
write session[variable], or session.state_dict()
    variables parameters get_weights
write gf.Session(g, executor=…) with the executor it is to run on
    to cuda cpu device devices set_providers enable_fallback disable_fallback
    set_ep_dynamic_options
write session.executor
    get_providers get_provider_options get_provider_graph_assignment_info
write [(x.name, x.shape) for x in session.graph.placeholders]
    get_inputs get_input_memory_infos get_input_epdevices
write session.graph.outputs
    get_outputs get_output_memory_infos
write session.graph.metadata
    get_modelmeta
write session.graph.variables
    get_overridable_initializers
write session.graph
    graph_def sess_str
write session.compile(fetches, feeds=[…]), whose plan is called with arrays
    make_callable partial_run partial_run_setup
write session.compile(fetches, feeds=[…]).profile(*arrays)
    profile end_profiling get_profiling_start_time_ns get_tuning_results set_tuning_results
write await asyncio.to_thread(session.run, fetches, feeds)
    run_async
leave it out: arrays on the executor's device are taken as they are, and results stay there
    io_binding run_with_iobinding create_ortvalue_from_shape_and_type release_captured_graph
write with gf.Session(g) as session: … session.run(fetches): no session is the default one
    as_default
say it as the session is made: gf.Session(g, threads=…, memory_limit=…, precision=…)
    get_session_options
write python -m graphfw doctor
    list_devices
"""

REPORT_TEXTS = """
write per_iteration
    per_trip
write location
    place
"""

GRAPH_TEXTS = """
write gf.Session(g).run(fetches, feeds)
    run eval call forward predict compile
write with g: … with the functions of gf
    as_default create_op call_function call_method call_module create_node node_copy
    inserting_before inserting_after create_size_node create_stride_node
    create_storage_offset_node get_attr
write g.location()
    place
write g.find(name)
    get_tensor_by_name get_operation_by_name as_graph_element
write g.nodes
    node get_operations operations find_nodes eqns ops
write g.placeholders
    input inputs get_inputs invars process_inputs
write gf.placeholder(shape, name=…) inside with g:
    placeholder
write g.outputs
    output output_node outvars get_outputs process_outputs
write g.variables, and g.constants()
    initializer sparse_initializer constvars parameters
    get_collection get_collection_ref get_all_collection_keys collections add_to_collection
    add_to_collections clear_collection
write str(g), which gf.parse reads
    as_graph_def python_code set_codegen on_generate_code to_json SerializeToString
write gf.onnx.save, or str(g), which gf.parse reads
    save export
write copy.deepcopy(g)
    clone graph_copy
write g.summary(), or print(g)
    print_tabular
write [node.types for node in g.nodes]
    value_info
write g.metadata
    metadata_props doc_string quantization_annotation
write g.check()
    lint
leave it out: sessions compute what is fetched, and nothing else
    eliminate_dead_code erase_node control_dependencies
leave it out: a graph may be extended at any time, inside with g:
    finalize finalized building_function switch_to_thread_local
write with gf.name_scope(name): …
    name_scope unique_name
the session chooses the machine: gf.Session(g, executor=…)
    device to cuda cpu
write gf.Session(g, seed=…)
    seed
write g.opset
    graph_def_versions version
write gf.custom_gradient
    gradient_override_map
write session.run(fetches, feeds): all placeholders, and nothing else, can be fed
    is_feedable is_fetchable prevent_feeding prevent_fetching
a graph belongs to no module: model.parameters() are its variables
    owning_module materialize_symint materialize_symints
"""

PLAN_TEXTS = """
write plan(*arrays)
    call run forward predict
write plan.program.feeds
    inputs get_inputs args_info in_avals in_tree input_formats input_shardings donate_argnums
write plan.program.graph.outputs
    outputs get_outputs out_info out_tree output_formats output_shardings
write plan.program.graph
    graph
write plan.source()
    as_text runtime_executable
write plan.cost()
    cost_analysis
write plan.memory()
    memory_analysis
write plan.explain()
    summary
"""

FUNCTION_TEXTS = """
write f(*arrays)
    call forward
write f.plan(*arrays)
    lower trace compile get_concrete_function
write f.plan(*arrays).profile(*arrays)
    profile
write print(f.plan(*arrays).explain()); a plan has cost, memory and source, too
    explain cost cost_analysis memory source
write f.session.save(path), and f.session.restore(path)
    save load restore
write f.session.state_dict()
    state_dict
write f.session.graph.variables
    variables parameters
write gf.eval_shape
    eval_shape
write print(f)
    pretty_printed_concrete_signatures experimental_get_tracing_count
make another one: gf.function(f.fn)
    clear_cache
write f.fn
    python_function
write f.session.graph
    graph
"""

SELECTION_CALLS = """
subtract|sub(selected, values): selected.add(-values)
divide|div(selected, values): selected.multiply(1 / values)
mul(selected, values): selected.multiply(values)
maximum(selected, values): selected.max(values)
minimum(selected, values): selected.min(values)
"""

SELECTION_TEXTS = """
write x.at[key].set(x[key] ** values)
    power pow
write x.at[key].set(fn(x[key]))
    apply
write x[key]
    get
"""
