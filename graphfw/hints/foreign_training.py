"""Names of other frameworks for data, training and models: what to do instead.

The layout is that of `foreign_texts`.
"""

from __future__ import annotations

TRAINING_TEXTS = """
write gf.data.batches({"x": x, "y": y}, 32, seed=0), and gf.data.feeds(batches, plan)
    DataLoader TensorDataset
data is any object with len(data) and data[i]: gf.data.batches(data, 32, seed=0)
    Dataset
data is any object with len(data) and data[i], or an iterable of batches for gf.data.feeds
    IterableDataset
the order is that of gf.data.batches(data, 32, seed=0); without seed= it is the data's
    BatchSampler RandomSampler Sampler SequentialSampler
write gf.data.batches({"x": x[:800], "y": y[:800]}, 32): slice the arrays, or choose by indices
    Subset random_split
write gf.data.mixed([a, b], weights, seed=0)
    ConcatDataset WeightedRandomSampler
examples of one shape are stacked; for others gf.data.batches(data, 32, collate_fn=function)
    default_collate
write gf.train.Trainer(…, patience=5)
    EarlyStopping
write gf.train.Trainer(…, checkpoints=gf.train.Checkpoints(folder))
    ModelCheckpoint
write gf.train.Trainer(…, loggers=[gf.train.Csv(path)])
    CSVLogger
write gf.train.Trainer(…, callbacks=[function])
    LambdaCallback
write gf.train.Trainer(…, loggers=[gf.train.Csv(path)], callbacks=[function])
    callbacks
write gf.train.Trainer(…, on_nan="stop")
    TerminateOnNaN
write trainer.fit(batches, resume=True), with gf.train.Trainer(…, checkpoints=…)
    BackupAndRestore
write gf.train.Trainer(…, progress=True)
    ProgbarLogger
a model is a gf.nn.Module, its training step a @gf.function, which gf.train.Trainer takes
    LightningModule
data is any iterable of batches, such as gf.data.batches({"x": x, "y": y}, 32, seed=0)
    LightningDataModule
options are arguments: gf.train.Trainer(…, patience=5)
    TrainingArguments
write gf.nn.lora(model, "*.q_proj", rank=8)
    LoraConfig PeftModel get_peft_model
write gf.models.from_pretrained(folder)
    AutoConfig AutoModel AutoModelForCausalLM BertModel GPT2LMHeadModel LlamaForCausalLM
write gf.nn.generate(model, ids, 20, do_sample=True, top_p=0.9)
    GenerationConfig pipeline
models are in gf.models: gf.models.resnet18(num_classes=10)
    applications get_model
not in graphfw: gf.models has ResNet, MobileNetV3, EfficientNet, ConvNeXt and VisionTransformer
    DenseNet121 InceptionV3 VGG16 Xception alexnet densenet121 inception_v3 vgg16
"""
