"""Functions of neural networks. A file `x_ops` has the op classes that `x` composes.

- `activations`: activations, softmax, dropout
- `normalisation`: layer, batch, group, instance and RMS norm
- `losses`, `classification_losses`, `binary_losses`, `pair_losses`, `likelihood_losses`, `ctc`,
  and `loss_warnings` of inputs that don't fit a loss
- `attention`, `attention_ops`, `attention_backward` (the gradient that cuDNN computes);
  `attention_pattern`, `attention_mask_fill` and `triangular_masks` find attention in compositions
- `positions`: rotary, sinusoidal and linear encodings of positions
- `convolution`, `convolution_ops`, `channels_last` (NHWC convolutions)
- `pooling`, `pooling_ops`, `unpooling`, `unfold` (im2col and col2im)
- `spatial_arguments`: kernel sizes, strides, padding and dilations for each spatial dim
- `resize`, `grid_sampling` (with pixel shuffles), `boxes` (NMS and RoI align)
"""
