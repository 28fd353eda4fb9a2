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
write gf.optim.schedules.cosine(lr, steps, warmup=100), or linear
    get_cosine_schedule_with_warmup get_linear_schedule_with_warmup
write gf.models.from_pretrained(folder)
    AutoConfig AutoModel AutoModelForCausalLM BertModel GPT2LMHeadModel LlamaForCausalLM
write gf.nn.generate(model, ids, 20, do_sample=True, top_p=0.9)
    GenerationConfig pipeline
models are in gf.models: gf.models.resnet18(num_classes=10)
    applications get_model
not in graphfw: gf.models has ResNet, MobileNetV3, EfficientNet, ConvNeXt and VisionTransformer
    DenseNet121 InceptionV3 VGG16 Xception alexnet densenet121 inception_v3 vgg16
"""

TRAINER_TEXTS = """
write trainer.fit(batches, eval_data=others)
    train run fit_loop
write gf.train.evaluate(function, data=batches), with a @gf.function
    evaluate validate test
write model(x, training=False)
    predict
write trainer.session.save(path), or gf.train.Trainer(…, checkpoints=gf.train.Checkpoints(folder))
    save save_model save_checkpoint save_state
write trainer.fit(batches, resume=True), or trainer.session.restore(path)
    load restore
write training = trainer.fit(batches), with training.history and training.step
    history state callback_metrics logged_metrics current_epoch global_step step metrics
a trainer has a step: model and optimizer are names of your own
    model optimizer optimizers lr_scheduler create_optimizer
write gf.train.Trainer(…, callbacks=[function])
    add_callback callbacks
"""

TRAINER_SET_TEXTS = """
make another trainer, with {name}=…
    *
"""

TRAINING_STATE_TEXTS = """
write training.history, a list of reports by name: training.history[-1]["loss"]
    metrics losses epoch params training_loss
write training.step
    global_step
"""

CHECKPOINTS_TEXTS = """
write session.restore(checkpoints.latest), or trainer.fit(batches, resume=True)
    restore restore_or_initialize load read
write checkpoints.latest
    latest_checkpoint latest_step last_model_path
write checkpoints.best
    best_step best_model_path
write checkpoints.paths()
    all_steps checkpoints
write checkpoints.folder
    directory dirpath
write gf.train.Checkpoints(folder, keep_last=3), which removes the earlier ones
    delete
write checkpoints.save(session, step)
    write should_save
files are written before save returns: leave it out
    close wait_until_finished
"""

BATCHES_TEXTS = """
write gf.data.batches(data, 32, seed=0), which says all of it
    batch batch_size shuffle sampler batch_sampler drop_last
write gf.data.batches(…, epochs=5)
    repeat
write (function(batch) for batch in batches), or change the data before
    map filter unbatch
write gf.data.feeds(batches, plan, ahead=2, workers=4); a trainer makes batches ahead, too
    prefetch cache num_workers pin_memory persistent_workers prefetch_factor
write a slice, a list of batches: batches[10:20]
    take skip
write for batch in batches: …
    as_numpy_iterator
write gf.data.batches(data, 32, collate_fn=function), and gf.data.padded for rows of other lengths
    collate_fn padded_batch
write gf.data.mixed([a, b], weights, seed=0)
    concatenate zip interleave
the data is what gf.data.batches was called with
    dataset
take the rows of mesh.shards("data", 8)
    shard
"""
