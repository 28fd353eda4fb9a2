"""Other libraries' calls of functions that graphfw has by the same name, with other arguments.

The rows are those of `foreign_calls.py`. They are asked when a call does not fit graphfw's own
function; where none of them fits either, the corrected line comes from that function's signature.
"""

from __future__ import annotations

FORMS = """
# Functions of elements.
add(x, y, *, alpha): x + alpha * y
subtract(x, y, *, alpha): x - alpha * y
divide(x, y, *, rounding_mode: "floor"): x // y
divide(x, y, *, rounding_mode: "trunc"): gf.trunc(x / y)
divide(x, y, *, rounding_mode: None): x / y
logit(x, eps): gf.special.logit(gf.clip(x, eps, 1 - eps))
matmul(x, y, *, transpose_a: True, transpose_b: True): x.mT @ y.mT
matmul(x, y, *, transpose_a: True): x.mT @ y
matmul(x, y, *, transpose_b: True): x @ y.mT
round(x, decimals): gf.round(x * 10**decimals) / 10**decimals

# Reductions.
max(x, y: tensor): gf.maximum(x, y)
min(x, y: tensor): gf.minimum(x, y)
max(x, *, dim, keepdim=None): (gf.max(x, axis=dim, keepdims=keepdim), \
gf.argmax(x, axis=dim, keepdims=keepdim))
min(x, *, dim, keepdim=None): (gf.min(x, axis=dim, keepdims=keepdim), \
gf.argmin(x, axis=dim, keepdims=keepdim))
max(x, axis=None, *, initial, keepdims=None): \
gf.maximum(gf.max(x, axis=axis, keepdims=keepdims), initial)
min(x, axis=None, *, initial, keepdims=None): \
gf.minimum(gf.min(x, axis=axis, keepdims=keepdims), initial)
sum(x, axis=None, *, initial, keepdims=None): gf.sum(x, axis=axis, keepdims=keepdims) + initial
prod(x, axis=None, *, initial, keepdims=None): gf.prod(x, axis=axis, keepdims=keepdims) * initial
sum(x, axis=None, *, where, keepdims=None): \
gf.sum(gf.where(where, x, 0), axis=axis, keepdims=keepdims)
prod(x, axis=None, *, where, keepdims=None): \
gf.prod(gf.where(where, x, 1), axis=axis, keepdims=keepdims)
mean(x, axis=None, *, where, keepdims=None): \
gf.average(x, axis=axis, weights=where, keepdims=keepdims)
any(x, axis=None, *, where, keepdims=None): gf.any(x & where, axis=axis, keepdims=keepdims)
all(x, axis=None, *, where, keepdims=None): gf.all(x | ~where, axis=axis, keepdims=keepdims)
std(x, dim=None, *, unbiased: False, keepdim=None): gf.std(x, axis=dim, keepdims=keepdim)
var(x, dim=None, *, unbiased: False, keepdim=None): gf.var(x, axis=dim, keepdims=keepdim)
std(x, dim=None, *, unbiased: True, keepdim=None): \
gf.std(x, axis=dim, correction=1, keepdims=keepdim)
var(x, dim=None, *, unbiased: True, keepdim=None): \
gf.var(x, axis=dim, correction=1, keepdims=keepdim)
std(x, *, dim, correction=1, keepdim=None): \
gf.std(x, axis=dim, correction=correction, keepdims=keepdim)
var(x, *, dim, correction=1, keepdim=None): \
gf.var(x, axis=dim, correction=correction, keepdims=keepdim)
median(x, *, dim, keepdim=None): gf.quantile(x, 0.5, axis=dim, keepdims=keepdim, method="lower")
nanmedian(x, *, dim, keepdim=None): \
gf.nanquantile(x, 0.5, axis=dim, keepdims=keepdim, method="lower")
norm(x, *, p: "fro", dim=None, keepdim=None): gf.vector_norm(x, axis=dim, keepdims=keepdim)
norm(x, *, p: "nuc", keepdim=None): gf.matrix_norm(x, ord="nuc", keepdims=keepdim)
norm(x, *, p, dim=None, keepdim=None): gf.vector_norm(x, ord=p, axis=dim, keepdims=keepdim)
norm(x, p: number, dim, keepdim=None): gf.vector_norm(x, ord=p, axis=dim, keepdims=keepdim)
vector_norm(x, ord: number, axis, keepdims=None): \
gf.vector_norm(x, ord=ord, axis=axis, keepdims=keepdims)
logsumexp(x, axis=None, *, b, keepdims=None): \
gf.logsumexp(x + gf.log(b), axis=axis, keepdims=keepdims)
softmax(x, axis=None, *, where): gf.softmax(gf.where(where, x, -gf.inf), axis=axis)
cov(x, y=None, *, bias: True, rowvar=None): gf.cov(x, y, rowvar=rowvar, correction=0)

# Sorting and searching.
sort(x, *, dim, descending=None, stable=None): (gf.sort(x, axis=dim, descending=descending), \
gf.argsort(x, axis=dim, descending=descending))
searchsorted(s, x, *, right: True): gf.searchsorted(s, x, side="right")
searchsorted(s, x, *, right: False): gf.searchsorted(s, x)
nonzero(x, *, as_tuple: True): gf.nonzero(x)
nonzero(x, *, as_tuple: False): gf.stack(gf.nonzero(x), axis=1)
where(condition): gf.nonzero(condition)
diff(x, n: number, axis=None): gf.diff(x, n=n, axis=axis)

# Shapes.
arange(*, start, end, step=None): gf.arange(start, end, step)
arange(*, start, stop, step=None): gf.arange(start, stop, step)
diagonal(x, *, dim1, dim2, offset=None): gf.diagonal(x, offset=offset, axis1=dim1, axis2=dim2)
diagonal(x, offset, dim1, dim2): gf.diagonal(x, offset=offset, axis1=dim1, axis2=dim2)
einsum(equation, operands: list): gf.einsum(equation, *operands)
meshgrid(u, v, *, sparse: True): (gf.expand_dims(u, axis=0), gf.expand_dims(v, axis=1))
meshgrid(arrays: list, *, indexing=None): gf.meshgrid(*arrays, indexing=indexing)
reshape(x, shape: list, *, order: "F"): gf.permute_dims(gf.reshape(gf.permute_dims(x), shape[::-1]))
split(x, size: number, *, dim): gf.split(x, range(size, x.shape[dim], size), axis=dim)
split(x, sizes: list, *, dim): \
gf.split(x, [sum(sizes[:n]) for n in range(1, len(sizes))], axis=dim)

# Elements by index.
index_add(x, axis: number, i, values): gf.index_add(x, (slice(None),) * axis + (i,), values)
index_add(x, axis: number, i, values, *, alpha): \
gf.index_add(x, (slice(None),) * axis + (i,), alpha * values)
scatter_add(x, axis: number, indices, values): gf.scatter_add(x, indices, values, axis=axis)
take(x, i, axis, *, mode: "clip"): gf.take(x, gf.clip(i, 0, x.shape[axis] - 1), axis=axis)
take(x, i, axis, *, mode: "wrap"): gf.take(x, i % x.shape[axis], axis=axis)
item(x, *key): x[(*key,)].item()

# Matrices.
svd(x, *, compute_uv: False, full_matrices=None): gf.linalg.svdvals(x)
cholesky(x, *, lower: True): gf.linalg.cholesky(x)
cholesky(x, *, lower: False): gf.linalg.cholesky(x, upper=True)
solve_triangular(m, b, *, lower: True, unit_diagonal=None): \
gf.linalg.solve_triangular(m, b, unit_diagonal=unit_diagonal)
solve_triangular(m, b, *, lower: False, unit_diagonal=None): \
gf.linalg.solve_triangular(m, b, upper=True, unit_diagonal=unit_diagonal)

# Optimisers.
Adam(lr=None, *, beta_1, beta_2=0.999, eps=None): \
gf.optim.Adam(lr, betas=(beta_1, beta_2), eps=eps)
Adam(lr=None, *, beta_1=0.9, beta_2, eps=None): \
gf.optim.Adam(lr, betas=(beta_1, beta_2), eps=eps)
AdamW(lr=None, *, beta_1, beta_2=0.999, eps=None, weight_decay=None): \
gf.optim.AdamW(lr, betas=(beta_1, beta_2), eps=eps, weight_decay=weight_decay)
AdamW(lr=None, *, beta_1=0.9, beta_2, eps=None, weight_decay=None): \
gf.optim.AdamW(lr, betas=(beta_1, beta_2), eps=eps, weight_decay=weight_decay)
Adam(lr, beta1: number, beta2: number, eps=None): gf.optim.Adam(lr, betas=(beta1, beta2), eps=eps)

apply_gradients(optimizer, grads, parameters): optimizer.apply_gradients(zip(grads, parameters))

# Data.
batches(x, y: tensor, size): gf.data.batches((x, y), size)

# Distributions.
Weibull(scale, k): gf.distributions.Weibull(concentration=k, scale=scale)
Pareto(scale, k): gf.distributions.Pareto(concentration=k, scale=scale)
Pareto(*, scale, alpha): gf.distributions.Pareto(concentration=alpha, scale=scale)
MultivariateNormal(loc, covariance): \
gf.distributions.MultivariateNormal(loc, covariance=covariance)

# Layers and losses as functions.
layer_norm(x, normalized_shape: (a,), weight=None, bias=None, eps=None): \
gf.layer_norm(x, weight, bias, eps=eps)
layer_norm(x, normalized_shape: (a, b), weight=None, bias=None, eps=None): \
gf.layer_norm(x, weight, bias, axis=(-2, -1), eps=eps)
layer_norm(x, normalized_shape: (a, b, c), weight=None, bias=None, eps=None): \
gf.layer_norm(x, weight, bias, axis=(-3, -2, -1), eps=eps)
layer_norm(x, *, normalized_shape, weight=None, bias=None, eps=None): \
gf.layer_norm(x, weight, bias, axis=tuple(range(-len(normalized_shape), 0)), eps=eps)
rms_norm(x, normalized_shape: (a,), weight=None, eps=None): gf.rms_norm(x, weight, eps=eps)
rms_norm(x, normalized_shape: (a, b), weight=None, eps=None): \
gf.rms_norm(x, weight, axis=(-2, -1), eps=eps)
cross_entropy(logits, target, weight: tensor): gf.nn.cross_entropy(logits, target, weight=weight)
nll(x, target, weight: tensor): gf.nn.nll(x, target, weight=weight)
"""
