"""Calls of other frameworks' functions that graphfw writes as an expression.

On the left is the call as its users write it, on the right what to write here. The error puts the
user's own arguments in the place of the left side's. Where a name has several calls, it takes the
first that the user's arguments fit. A method's object is its first argument. What stands after a
parameter's colon is in `expressions.py`; a bar is between two names of the same.
"""

from __future__ import annotations

CALLS = """
# Statistics, and elements by index.
correlate(u, v, mode="valid"): gf.convolve(u, gf.conj(gf.flip(v)), mode=mode)
cumulative_trapezoid(v): gf.cumulative_sum((v[1:] + v[:-1]) / 2)
histc(x, bins=100): gf.histogram(x, bins).counts
histc(x, bins=100, *, min, max): gf.histogram(x, bins, range=(min, max)).counts
histc(x, bins, min, max): gf.histogram(x, bins, range=(min, max)).counts
histogram_bin_edges(x, bins=10): gf.histogram(x, bins).edges
histogram_bin_edges(x, bins, range): gf.histogram(x, bins, range=range).edges
logcumsumexp(x, axis=0): gf.associative_scan(gf.logaddexp, x, axis=axis)
scatter(x, axis, indices, values): gf.put_along_axis(x, indices, values, axis=axis)

# Functions of elements.
addcdiv(x, a, b): x + a / b
addcdiv(x, a, b, value): x + value * a / b
addcmul(x, a, b): x + a * b
addcmul(x, a, b, value): x + value * a * b
angle(x): gf.atan2(gf.imag(x), gf.real(x))
angle(x, deg: True): gf.atan2(gf.imag(x), gf.real(x)) * (180 / gf.pi)
cbrt(x): gf.sign(x) * gf.abs(x) ** (1 / 3)
deg2rad(x): x * (gf.pi / 180)
degrees(x): x * (180 / gf.pi)
divmod(x, y): (x // y, x % y)
exp2(x): 2.0**x
float_power(x, y): gf.astype(x, gf.float64) ** y
fmax(x, y): gf.where(gf.isnan(x), y, gf.where(gf.isnan(y), x, gf.maximum(x, y)))
fmin(x, y): gf.where(gf.isnan(x), y, gf.where(gf.isnan(y), x, gf.minimum(x, y)))
fmod(x, y): x - y * gf.trunc(x / y)
frac(x): x - gf.trunc(x)
hardshrink(x, lambd=0.5): gf.where(gf.abs(x) > lambd, x, 0)
heaviside(x, values): gf.where(x > 0, 1, gf.where(x < 0, 0, values))
isneginf(x): x == -gf.inf
isposinf(x): x == gf.inf
ldexp(x, exponent): x * 2.0**exponent
lerp(a, b, weight): a + weight * (b - a)
log1mexp(x): gf.log1p(-gf.exp(-x))
log_cosh(x, y): gf.softplus(2 * (x - y)) - (x - y) - gf.log(2.0)
logaddexp2(x, y): gf.logaddexp(x * gf.log(2.0), y * gf.log(2.0)) / gf.log(2.0)
modf(x): (x - gf.trunc(x), gf.trunc(x))
polar(r, angle): r * gf.exp(1j * angle)
rad2deg(x): x * (180 / gf.pi)
radians(x): x * (gf.pi / 180)
rsub(x, y): y - x
rsub(x, y, alpha): y - alpha * x
softshrink(x, lambd=0.5): gf.sign(x) * gf.relu(gf.abs(x) - lambd)
sparse_plus(x): gf.where(gf.abs(x) < 1, (x + 1) ** 2 / 4, gf.relu(x))
sparse_sigmoid(x): gf.clip((x + 1) / 2, 0, 1)
spacing(x): gf.nextafter(x, gf.inf) - x
squareplus(x, b=4): (x + gf.sqrt(x**2 + b)) / 2
tanhshrink(x): x - gf.tanh(x)
threshold(x, threshold, value): gf.where(x > threshold, x, value)

# Reductions.
amax(x, axis=None, keepdims=None): gf.max(x, axis=axis, keepdims=keepdims)
amin(x, axis=None, keepdims=None): gf.min(x, axis=axis, keepdims=keepdims)
aminmax(x): (gf.min(x), gf.max(x))
array_equal(x, y): gf.all(x == y)
array_equiv(x, y): gf.all(x == y)
dist(x, y, p=2): gf.vector_norm(x - y, ord=p)
frobenius_norm(x): gf.matrix_norm(x)
logmeanexp(x, axis=None): gf.log(gf.mean(gf.exp(x), axis=axis))
nancumsum(x): gf.cumulative_sum(gf.flatten(gf.where(gf.isnan(x), 0, x)))
nancumsum(x, axis): gf.cumulative_sum(gf.where(gf.isnan(x), 0, x), axis=axis)
nancumprod(x): gf.cumulative_prod(gf.flatten(gf.where(gf.isnan(x), 1, x)))
nancumprod(x, axis): gf.cumulative_prod(gf.where(gf.isnan(x), 1, x), axis=axis)
nuclear_norm(x): gf.matrix_norm(x, ord="nuc")
ptp(x, axis=None, keepdims=None): \
gf.max(x, axis=axis, keepdims=keepdims) - gf.min(x, axis=axis, keepdims=keepdims)
std_mean(x, axis=None, *, correction=1, keepdims=None): \
(gf.std(x, axis=axis, correction=correction, keepdims=keepdims), \
gf.mean(x, axis=axis, keepdims=keepdims))
var_mean(x, axis=None, *, correction=1, keepdims=None): \
(gf.var(x, axis=axis, correction=correction, keepdims=keepdims), \
gf.mean(x, axis=axis, keepdims=keepdims))

# Sorting and searching.
argpartition(x, n): gf.argsort(x)
argwhere(x): gf.stack(gf.nonzero(x), axis=1)
bucketize(x, boundaries): gf.searchsorted(boundaries, x)
bucketize(x, boundaries, *, right: True): gf.searchsorted(boundaries, x, side="right")
choose(i, arrays: list): gf.take_along_axis(gf.stack(arrays), gf.expand_dims(i), axis=0)[0]
flatnonzero(x): gf.nonzero(gf.flatten(x))[0]
iscomplexobj(x): x.dtype.is_complex
isrealobj(x): not x.dtype.is_complex
intersect1d(x, y): gf.unique_values(x[gf.isin(x, y)])
kthvalue(x, k): gf.sort(x)[..., k - 1]
kthvalue(x, k, axis): gf.take(gf.sort(x, axis=axis), k - 1, axis=axis)
msort(x): gf.sort(x, axis=0)
partition(x, n): gf.sort(x)
setdiff1d(x, y): gf.unique_values(x[~gf.isin(x, y)])
union1d(x, y): gf.unique_values(gf.concat([gf.flatten(x), gf.flatten(y)]))
unique(x): gf.unique_values(x)
unique(x, sorted: True): gf.unique_values(x)
unique(x, sorted=True, *, return_counts: True): gf.unique_counts(x)
unique(x, sorted=True, *, return_inverse: True): gf.unique_inverse(x)
unique(x, sorted=True, *, return_index=False, return_inverse=False, return_counts=False): \
gf.unique_all(x)

# Shapes.
append(x, y): gf.concat([gf.flatten(x), gf.flatten(y)])
append(x, y, axis): gf.concat([x, y], axis=axis)
block(arrays: list): gf.concat([gf.concat(row, axis=-1) for row in arrays], axis=-2)
cartesian_prod(u, v): gf.stack([gf.flatten(w) for w in gf.meshgrid(u, v, indexing="ij")], axis=1)
dsplit(volume, sections): gf.split(volume, sections, axis=2)
fliplr(x): gf.flip(x, axis=1)
flipud(x): gf.flip(x, axis=0)
hsplit(x, sections): gf.split(x, sections, axis=1)
narrow(x, axis, start, length): gf.take(x, gf.arange(start, start + length), axis=axis)
ndim(x): x.ndim
numel(x): x.size
ravel(x): gf.reshape(x, (-1,))
select_n(mask, x, y): gf.where(mask, y, x)
rollaxis(x, axis): gf.moveaxis(x, axis, 0)
rollaxis(x, axis, start): gf.moveaxis(x, axis, start - (start > axis))
shape(x): x.shape
size(x): x.size
size(x, axis): x.shape[axis]
t(x): x.mT
unflatten(x, axis, sizes): gf.reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis:][1:]))
view_as_complex(x): gf.complex(x[..., 0], x[..., 1])
view_as_real(x): gf.stack([gf.real(x), gf.imag(x)], axis=-1)
split_with_sizes(x, sizes, axis=0): \
gf.split(x, [sum(sizes[:n]) for n in range(1, len(sizes))], axis=axis)
vsplit(x, sections): gf.split(x, sections, axis=0)

# Elements by index and by mask.
compress(mask, x): x[mask]
compress(mask: list, x, axis): gf.take(x, gf.nonzero(gf.asarray(mask))[0], axis=axis)
compress(mask, x, axis): gf.take(x, gf.nonzero(mask)[0], axis=axis)
embedding(indices, table): gf.take(table, indices, axis=0)
delete(v, i: number): v[gf.arange(v.shape[0]) != i]
delete(v, indices: list): v[~gf.isin(gf.arange(v.shape[0]), gf.asarray(indices))]
delete(x, i: number, axis): \
gf.take(x, [j for j in range(x.shape[axis]) if j != i], axis=axis)
delete(x, indices: list, axis): \
gf.take(x, [j for j in range(x.shape[axis]) if j not in indices], axis=axis)
extract(mask, x): x[mask]
fill_diagonal(x, value): gf.where(gf.eye(*x.shape, dtype=gf.bool), value, x)
gather(x, axis, indices): gf.take_along_axis(x, indices, axis=axis)
index_copy(x, axis, i, v): gf.index_set(x, (slice(None),) * axis + (i,), v)
index_select(x, axis, indices): gf.take(x, indices, axis=axis)
index_fill(x, axis, i, value): gf.index_set(x, (slice(None),) * axis + (i,), value)
insert(v, i, number): gf.concat([v[:i], gf.asarray([number]), v[i:]])
masked_fill(x, mask, value): gf.where(mask, value, x)
masked_select(x, mask): x[mask]
place(x, mask, value): gf.where(mask, value, x)
putmask(x, mask, value): gf.where(mask, value, x)
put(x, i, number): gf.reshape(gf.index_set(gf.flatten(x), i, number), x.shape)

# Making tensors.
iota(dtype: dtype, n): gf.arange(n, dtype=dtype)
permute(x, axes: list): gf.permute_dims(x, axes)
permute(x, *axes): gf.permute_dims(x, (*axes,))
permute(x, *, axes): gf.permute_dims(x, axes)
transpose(x): gf.permute_dims(x)
transpose(x, axes): gf.permute_dims(x, axes)
transpose(x, axis1, axis2): gf.swapaxes(x, axis1, axis2)
transpose(x, *axes): gf.permute_dims(x, (*axes,))
diag_embed(v): gf.where(gf.eye(v.shape[-1], dtype=gf.bool), gf.expand_dims(v, axis=-1), 0)
diag_indices(n): (gf.arange(n), gf.arange(n))
diagflat(v, k=None): gf.diag(gf.flatten(v), k=k)
geomspace(start, stop, num): start * (stop / start) ** gf.linspace(0, 1, num)
logspace(start, stop, num): 10.0 ** gf.linspace(start, stop, num)
logspace(start, stop, num, *, base): base ** gf.linspace(start, stop, num)
rand(*shape): gf.random.uniform((*shape,))
randn(*shape): gf.random.normal((*shape,))
rand_like(x): gf.random.uniform(x.shape)
randint_like(x, high): gf.random.randint(0, high, x.shape)
randn_like(x): gf.random.normal(x.shape)
tri(n): gf.tril(gf.ones((n, n)))
tri(n, m, k=None): gf.tril(gf.ones((n, m)), k=k)
tril_indices(n, *, k=None): gf.nonzero(gf.tril(gf.ones((n, n)), k=k))
triu_indices(n, *, k=None): gf.nonzero(gf.triu(gf.ones((n, n)), k=k))

chisquare(df, size=()): gf.random.gamma(size, df / 2, 2)
geometric(p, size=()): 1 + gf.floor(gf.random.exponential(size) / -gf.log1p(-p))
logistic(loc=0, scale=1, size=()): loc + scale * gf.special.logit(gf.random.uniform(size))
lognormal(mean=0, sigma=1, size=()): gf.exp(gf.random.normal(size, mean, sigma))
pareto(a, size=()): gf.expm1(gf.random.exponential(size) / a)
rayleigh(scale=1, size=()): scale * gf.sqrt(2 * gf.random.exponential(size))
standard_gamma(number, size=()): gf.random.gamma(size, number)
standard_t(df, size=()): gf.random.student_t(size, df)
weibull(a, size=()): gf.random.exponential(size) ** (1 / a)

# Products and matrices.
block_diag(a, b): gf.concat([gf.pad(a, ((0, 0), (0, b.shape[1]))), \
gf.pad(b, ((0, 0), (a.shape[1], 0)))])
addbmm(c, a, b): c + gf.sum(a @ b, axis=0)
addmm(c, a, b): c + a @ b
addmm(c, a, b, *, beta=1, alpha=1): beta * c + alpha * (a @ b)
addmv(c, a, v): c + a @ v
addmv(c, a, v, *, beta=1, alpha=1): beta * c + alpha * (a @ v)
addr(c, u, v): c + gf.outer(u, v)
adjoint(x): gf.conj(x).mT
baddbmm(c, a, b): c + a @ b
baddbmm(c, a, b, *, beta=1, alpha=1): beta * c + alpha * (a @ b)
bilinear(x, y, volume): gf.einsum("...i,oij,...j->...o", x, volume, y)
cdist(x, y, p=None): \
gf.vector_norm(gf.expand_dims(x, axis=-2) - gf.expand_dims(y, axis=-3), ord=p, axis=-1)
cholesky_inverse(m): gf.linalg.inv(m @ m.mT)
cholesky_solve(b, m): gf.linalg.solve(m @ m.mT, b)
chain_matmul(a, b): a @ b
chain_matmul(a, b, c): a @ b @ c
chain_matmul(a, b, c, d): a @ b @ c @ d
dot(x, y): x @ y
inner(x, y): gf.tensordot(x, y, axes=([-1], [-1]))
linear(x, weight): x @ weight.mT
linear(x, weight, bias): x @ weight.mT + bias
logdet(m): gf.linalg.slogdet(m).logabsdet
pairwise_distance(x, y, p=None, *, keepdims=None): \
gf.vector_norm(x - y, ord=p, axis=-1, keepdims=keepdims)
polyder(v): v[:-1] * gf.arange(v.shape[0] - 1, 0, -1)
polyint(v): gf.concat([v / gf.arange(v.shape[0], 0, -1), gf.zeros(1)])
polymul(u, v): gf.convolve(u, v)
vdot(x, y): gf.vecdot(gf.flatten(x), gf.flatten(y))
vecmat(v, m): v @ m

# Layers as functions.
ctc_loss(x, target, input_lengths, target_lengths, blank=None, reduction=None, \
zero_infinity=None): gf.nn.ctc(gf.swapaxes(x, 0, 1), target, input_lengths=input_lengths, \
target_lengths=target_lengths, blank=blank, reduction=reduction, zero_infinity=zero_infinity)
gumbel_softmax(logits, tau=1): gf.softmax((logits + gf.random.gumbel(logits.shape)) / tau)
hinge_embedding_loss(x, target, margin=1): gf.mean(gf.where(target > 0, x, gf.relu(margin - x)))
soft_margin_loss(x, target): gf.mean(gf.softplus(-target * x))
dot_product_attention(q, k, v, *, causal=None, scale=None): \
gf.swapaxes(gf.scaled_dot_product_attention(gf.swapaxes(q, 1, 2), gf.swapaxes(k, 1, 2), \
gf.swapaxes(v, 1, 2), causal=causal, scale=scale), 1, 2)
interpolate|upsample(x, size=None, scale_factor=None, mode="nearest", *, align_corners: True): \
gf.resize(x, sizes=size, scales=scale_factor, mode=mode, \
coordinate_transformation_mode="align_corners")
interpolate|upsample(x, size=None, scale_factor=None, mode="nearest", *, align_corners=False): \
gf.resize(x, sizes=size, scales=scale_factor, mode=mode)
standardize(x, axis=-1): (x - gf.mean(x, axis=axis, keepdims=True)) / gf.std(x, axis=axis, \
keepdims=True)
GlobalAveragePooling1D(images): gf.mean(images, axis=2)
GlobalAveragePooling2D(images): gf.mean(images, axis=(2, 3))
GlobalAveragePooling3D(images): gf.mean(images, axis=(2, 3, 4))
GlobalMaxPooling1D(images): gf.max(images, axis=2)
GlobalMaxPooling2D(images): gf.max(images, axis=(2, 3))
GlobalMaxPooling3D(images): gf.max(images, axis=(2, 3, 4))
LazyBatchNorm1d(eps=None, momentum=None, affine=None): \
gf.nn.BatchNorm1d(None, eps=eps, momentum=momentum, affine=affine)
LazyBatchNorm2d(eps=None, momentum=None, affine=None): \
gf.nn.BatchNorm2d(None, eps=eps, momentum=momentum, affine=affine)
LazyBatchNorm3d(eps=None, momentum=None, affine=None): \
gf.nn.BatchNorm3d(None, eps=eps, momentum=momentum, affine=affine)
LazyInstanceNorm1d(eps=None, momentum=None, affine=None): \
gf.nn.InstanceNorm1d(None, eps=eps, momentum=momentum, affine=affine)
LazyInstanceNorm2d(eps=None, momentum=None, affine=None): \
gf.nn.InstanceNorm2d(None, eps=eps, momentum=momentum, affine=affine)
LazyInstanceNorm3d(eps=None, momentum=None, affine=None): \
gf.nn.InstanceNorm3d(None, eps=eps, momentum=momentum, affine=affine)
LazyConv1d(out_channels, kernel_size, stride=None, padding=None, dilation=None, \
groups=None, bias=None): gf.nn.Conv1d(None, out_channels, kernel_size, stride=stride, \
padding=padding, dilation=dilation, groups=groups, bias=bias)
LazyConv2d(out_channels, kernel_size, stride=None, padding=None, dilation=None, \
groups=None, bias=None): gf.nn.Conv2d(None, out_channels, kernel_size, stride=stride, \
padding=padding, dilation=dilation, groups=groups, bias=bias)
LazyConv3d(out_channels, kernel_size, stride=None, padding=None, dilation=None, \
groups=None, bias=None): gf.nn.Conv3d(None, out_channels, kernel_size, stride=stride, \
padding=padding, dilation=dilation, groups=groups, bias=bias)
LazyConvTranspose1d(out_channels, kernel_size, stride=None, padding=None, bias=None): \
gf.nn.ConvTranspose1d(None, out_channels, kernel_size, stride=stride, padding=padding, bias=bias)
LazyConvTranspose2d(out_channels, kernel_size, stride=None, padding=None, bias=None): \
gf.nn.ConvTranspose2d(None, out_channels, kernel_size, stride=stride, padding=padding, bias=bias)
LazyConvTranspose3d(out_channels, kernel_size, stride=None, padding=None, bias=None): \
gf.nn.ConvTranspose3d(None, out_channels, kernel_size, stride=stride, padding=padding, bias=bias)
LazyLinear(out_features, bias=None): gf.nn.Linear(None, out_features, bias=bias)
"""

SPECIAL_CALLS = """
beta(a, b): gf.exp(gf.special.betaln(a, b))
betaincc(a, b, x): gf.special.betainc(b, a, 1 - x)
binom(n, k): gf.exp(gf.lgamma(n + 1) - gf.lgamma(k + 1) - gf.lgamma(n - k + 1))
boxcox(x, power): gf.expm1(power * gf.log(x)) / power
boxcox1p(x, power): gf.expm1(power * gf.log1p(x)) / power
chdtrc(v, x): gf.special.gammaincc(v / 2, x / 2)
chdtr(v, x): gf.special.gammainc(v / 2, x / 2)
comb(n, k): gf.round(gf.exp(gf.lgamma(n + 1) - gf.lgamma(k + 1) - gf.lgamma(n - k + 1)))
cosm1(x): -2 * gf.sin(x / 2) ** 2
erfcinv(x): -gf.special.ndtri(x / 2) / gf.sqrt(2.0)
exp10(x): 10.0**x
exprel(x): gf.where(x == 0, 1.0, gf.expm1(x) / gf.where(x == 0, 1.0, x))
factorial(n): gf.special.gamma(n + 1)
gammasgn(x): gf.where((x > 0) | (gf.floor(x) % 2 == 0), 1.0, -1.0)
huber(delta, r): gf.where(gf.abs(r) <= delta, r * r / 2, delta * (gf.abs(r) - delta / 2))
inv_boxcox(y, power): gf.exp(gf.log1p(power * y) / power)
inv_boxcox1p(y, power): gf.expm1(gf.log1p(power * y) / power)
kl_div(x, y): gf.special.xlogy(x, x / y) - x + y
loggamma(x): gf.lgamma(x)
multigammaln(a, d): \
d * (d - 1) / 4 * gf.log(gf.pi) + sum(gf.lgamma(a - j / 2) for j in range(d))
poch(x, m): gf.exp(gf.lgamma(x + m) - gf.lgamma(x))
pseudo_huber(delta, r): delta**2 * (gf.sqrt(1 + (r / delta) ** 2) - 1)
rel_entr(x, y): gf.special.xlogy(x, x / y)
rgamma(x): 1 / gf.special.gamma(x)
"""
"""SciPy's names for special functions, some of which are something else elsewhere."""

OPTIM_CALLS = """
adam(lr, *, eps=None): gf.optim.Adam(lr, eps=eps)
adam(lr, b1=0.9, b2=0.999, eps=None): gf.optim.Adam(lr, betas=(b1, b2), eps=eps)
adamw(lr, *, eps=None, weight_decay=None): gf.optim.AdamW(lr, eps=eps, weight_decay=weight_decay)
adamw(lr, b1=0.9, b2=0.999, eps=None, *, weight_decay=None): \
gf.optim.AdamW(lr, betas=(b1, b2), eps=eps, weight_decay=weight_decay)
adamaxw(lr, *, eps=None, weight_decay=1e-4): \
gf.optim.Adamax(lr, eps=eps, weight_decay=weight_decay, decoupled_weight_decay=True)
adamaxw(lr, b1=0.9, b2=0.999, eps=None, *, weight_decay=1e-4): gf.optim.Adamax(lr, \
betas=(b1, b2), eps=eps, weight_decay=weight_decay, decoupled_weight_decay=True)
amsgrad(lr, *, eps=None): gf.optim.Adam(lr, eps=eps, amsgrad=True)
amsgrad(lr, b1=0.9, b2=0.999, eps=None): \
gf.optim.Adam(lr, betas=(b1, b2), eps=eps, amsgrad=True)
CosineAnnealingLR(optimizer, steps, final=None): gf.optim.schedules.cosine(lr, steps, final=final)
CosineAnnealingWarmRestarts(optimizer, steps, growth=None, final=None): \
gf.optim.schedules.cosine_restarts(lr, steps, final=final, growth=growth)
CosineDecay|cosine_decay_schedule(lr, steps, alpha=None): \
gf.optim.schedules.cosine(lr, steps, final=alpha * lr)
CyclicLR(optimizer, low, lr, rise=2000, fall=None): \
gf.optim.schedules.cyclic(low, lr, rise, fall=fall)
ExponentialDecay|exponential_decay(lr, steps, rate): gf.optim.schedules.exponential(lr, rate, steps)
ExponentialDecay|exponential_decay(lr, decay_steps, decay_rate): \
gf.optim.schedules.exponential(lr, decay_rate, decay_steps)
exponential_decay(lr, transition_steps, decay_rate): \
gf.optim.schedules.exponential(lr, decay_rate, transition_steps)
ExponentialLR(optimizer, factor): gf.optim.schedules.exponential(lr, factor)
MultiStepLR(optimizer, milestones, factor=0.1): \
gf.optim.schedules.piecewise(milestones, [lr * factor**n for n in range(len(milestones) + 1)])
PolynomialLR(optimizer, steps=5, power=None): gf.optim.schedules.polynomial(lr, steps, power)
SequentialLR(optimizer, schedules, milestones): gf.optim.schedules.join(schedules, milestones)
StepLR(optimizer, every, factor=None): gf.optim.schedules.step_decay(lr, every, factor)
warmup_cosine_decay_schedule(init_value, lr, warmup, decay_steps, final=None): \
gf.optim.schedules.cosine(lr, decay_steps, final=final, warmup=warmup)
"""
"""Optimisers and schedules. PyTorch's take the optimiser, whose rate stands as `lr`."""

NN_CALLS = """
pad(x, pad: (a, b), mode=None, value=None): \
gf.pad(x, ((0, 0),) * (x.ndim - 1) + ((a, b),), mode=mode, constant_values=value)
pad(x, pad: (a, b, c, d), mode=None, value=None): \
gf.pad(x, ((0, 0),) * (x.ndim - 2) + ((c, d), (a, b)), mode=mode, constant_values=value)
pad(x, pad: (a, b, c, d, e, f), mode=None, value=None): \
gf.pad(x, ((0, 0),) * (x.ndim - 3) + ((e, f), (c, d), (a, b)), mode=mode, constant_values=value)
"""
"""PyTorch's, which names the last dim first."""

FFT_CALLS = """
fft2(x): gf.fft.fftn(x, axes=(-2, -1))
ifft2(x): gf.fft.ifftn(x, axes=(-2, -1))
irfft2(x): gf.fft.irfftn(x, axes=(-2, -1))
rfft2(x): gf.fft.rfftn(x, axes=(-2, -1))
"""

RANDOM_CALLS = """
random(size): gf.random.uniform(size)
"""

LINALG_CALLS = """
multi_dot(arrays: (a, b)): a @ b
multi_dot(arrays: (a, b, c)): a @ b @ c
multi_dot(arrays: (a, b, c, d)): a @ b @ c @ d
cond(m, p=2): gf.matrix_norm(m, ord=p) * gf.matrix_norm(gf.linalg.inv(m), ord=p)
vander(v, *, N=None): gf.vander(v, N, increasing=True)
"""
