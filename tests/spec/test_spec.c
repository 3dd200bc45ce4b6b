/* The spec parser through its interface: defaults, every key's forms, and what each mistake is told. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/names/names.h"
#include "dataplane/spec/spec.h"
#include "tests/support/test.h"

#define HEAD     "dataset: photos\n"
#define PIPELINE "pipeline: [decode, random_resized_crop: 224, normalize: imagenet]\n"

static fby_spec *parse(const char *text)
{
    fby_spec *spec;
    fby_error error = FBY_ERROR_INIT;
    int status = fby_spec_parse(&spec, "s.yaml", text, strlen(text), "/data", &error);
    cr_assert_eq(status, FBY_OK, "%s\n%s", error.text, text);
    return spec;
}

/* Parses a wrong spec and looks for `expected` in what it is told. */
static void refused(const char *text, const char *expected)
{
    fby_spec *spec;
    fby_error error = FBY_ERROR_INIT;
    int status = fby_spec_parse(&spec, "s.yaml", text, strlen(text), "/data", &error);
    cr_assert_eq(status, FBY_EINVAL, "not refused: %s", text);
    cr_assert_null(spec);
    cr_assert_eq(error.code, FBY_EINVAL);
    cr_assert_not_null(strstr(error.text, expected), "said:     %s\nexpected: %s", error.text, expected);
    cr_assert(!strncmp(error.text, "s.yaml:", 7), "%s", error.text);
    cr_assert_null(strpbrk(error.text, "\n\r\t"), "%s", error.text);
    cr_assert_not_null(strstr(error.text, "expected"), "%s", error.text);
}

Test(spec, defaults)
{
    fby_spec *spec = parse(HEAD PIPELINE);
    cr_assert_eq(spec->dataset_kind, FBY_DATASET_FOLDER);
    cr_assert_str_eq(spec->dataset_path, "/data/photos");
    cr_assert_eq(spec->allow_empty, false);
    cr_assert_eq(spec->split.kind, FBY_SPLIT_ALL);
    cr_assert_eq(spec->order, FBY_ORDER_SHARED);
    cr_assert_eq(spec->seed, 0);
    cr_assert_eq(spec->augment_seed, 0);
    cr_assert_eq(spec->epochs, 0);
    cr_assert_eq(spec->steps_per_epoch, 0);
    cr_assert_eq(spec->batch_size, 64);
    cr_assert_eq(spec->drop_last, false);
    cr_assert_eq(spec->ranks, 1);
    cr_assert_eq(spec->window, FBY_SPEC_WINDOW);
    cr_assert_eq(spec->on_error, FBY_ON_ERROR_FAIL);
    cr_assert_eq(spec->max_errors, 0.001);
    cr_assert_eq(spec->sample_timeout_ns, UINT64_C(30000000000));
    cr_assert_eq(spec->op_count, 4, "to is added");
    cr_assert_str_eq(spec->ops[3].op->name, "to");
    fby_shape shape;
    cr_assert_eq(fby_spec_infer(spec, &shape, NULL), FBY_OK);
    cr_assert_eq(shape.dtype, FBY_F32);
    cr_assert_eq(shape.layout, FBY_CHW);
    cr_assert_eq(shape.w, 224);
    cr_assert_eq(shape.h, 224);
    cr_assert(shape.normalized);
    cr_assert_float_eq(shape.mean[0], 0.485f, 1e-9);
    cr_assert_float_eq(shape.std[2], 0.225f, 1e-9);
    fby_spec_free(&spec);
    cr_assert_null(spec);
}

Test(spec, a_pipeline_that_is_not_normalized_ends_as_u8)
{
    fby_spec *spec = parse(HEAD "pipeline: [decode, resize: [30, 40]]\n");
    fby_shape shape;
    cr_assert_eq(fby_spec_infer(spec, &shape, NULL), FBY_OK);
    cr_assert_eq(shape.dtype, FBY_U8);
    cr_assert_eq(shape.layout, FBY_CHW);
    cr_assert_eq(shape.h, 30);
    cr_assert_eq(shape.w, 40);
    fby_spec_free(&spec);
}

Test(spec, every_key)
{
    fby_spec *spec =
        parse("# all of it\n"
              "dataset: {list: /lists/train.txt, allow_empty: true}\n"
              "order: strict\nseed: 18446744073709551615\naugment_seed: 7\nepochs: 90\n"
              "pipeline:\n"
              "  - decode: {fast: true, exif: true, tolerate_missing_eoi: true, max_pixels: 1000000, "
              "entropy: libjpeg}\n"
              "  - random_resized_crop: {size: [192, 256], scale: [1/4, 1], ratio: [3/4, 4/3], "
              "interpolation: bicubic, pillow: 12, augment_seed: 9}\n"
              "  - random_horizontal_flip:\n"
              "      p: 1/2\n"
              "  - random_vertical_flip: 0.25\n"
              "  - normalize: {mean: [0.5, 0.5, 0.5], std: [1/4, 1/4, 1/4]}\n"
              "  - to: {dtype: bf16, layout: hwc}\n"
              "batch: {size: 4096, drop_last: true}\nranks: 8\nwindow: 5\non_error: skip\n"
              "max_errors: 12\nsample_timeout: 1.5m\n");
    cr_assert_eq(spec->dataset_kind, FBY_DATASET_LIST);
    cr_assert_str_eq(spec->dataset_path, "/lists/train.txt");
    cr_assert_eq(spec->allow_empty, true);
    cr_assert_eq(spec->dataset_line, 2);
    cr_assert_eq(spec->order, FBY_ORDER_STRICT);
    cr_assert_eq(spec->seed, UINT64_MAX);
    cr_assert_eq(spec->augment_seed, 7);
    cr_assert_eq(spec->epochs, 90);
    cr_assert_eq(spec->op_count, 6);
    cr_assert_eq(spec->ops[1].line, 9);
    cr_assert_eq(spec->batch_size, 4096);
    cr_assert_eq(spec->drop_last, true);
    cr_assert_eq(spec->ranks, 8);
    cr_assert_eq(spec->window, 5);
    cr_assert_eq(spec->on_error, FBY_ON_ERROR_SKIP);
    cr_assert_eq(spec->max_errors, 12);
    cr_assert_eq(spec->sample_timeout_ns, UINT64_C(90000000000));
    char *text = fby_spec_print(spec);
    cr_assert_not_null(strstr(text,
                              "random_resized_crop: {size: [192, 256], scale: [0.25, 1], ratio: [0.75, "
                              "1.3333333333333333], interpolation: bicubic, pillow: 12, augment_seed: 9}"),
                       "%s", text);
    cr_assert_not_null(strstr(text, "max_pixels: 1000000, entropy: libjpeg}"), "%s", text);
    cr_assert_not_null(strstr(text, "random_vertical_flip: {p: 0.25, augment_seed: 7}"), "%s", text);
    free(text);
    fby_spec_free(&spec);
}

Test(spec, forms_of_the_same)
{
    const char *forms[][2] = {
        {HEAD PIPELINE, "dataset: {folder: /data/photos}\n" PIPELINE},
        {HEAD "batch: 32\n" PIPELINE, "batch: {size: 32}\n" HEAD PIPELINE},
        {HEAD "pipeline: [decode, center_crop: 8]",
         HEAD "pipeline:\n- decode: {}\n- center_crop: {size: [8, 8]}\n"},
        {HEAD "pipeline: [decode, center_crop: 8]",
         HEAD "pipeline:\n- decode:\n- center_crop:\n    size: 8\n- to: {dtype: u8}"},
        {HEAD PIPELINE, HEAD "split: all\n" PIPELINE},
        {HEAD "split: {part: 0.8}\n" PIPELINE, HEAD "split:\n  seed: 0\n  part: [-0, 4/5]\n" PIPELINE},
        {HEAD "split: {ids: a/b}\n" PIPELINE, HEAD "split: {ids: /data/a/b}\n" PIPELINE},
        {HEAD "split: {classes: [a, 1]}\n" PIPELINE,
         HEAD "split:\n  classes:\n  - 'a'\n  - \"1\"\n" PIPELINE},
        {HEAD "epochs: unlimited\n" PIPELINE, HEAD "steps_per_epoch: unset\n" PIPELINE},
        {HEAD "sample_timeout: 2s\n" PIPELINE, HEAD "sample_timeout: 2000ms\n" PIPELINE},
        {HEAD "augment_seed: 3\n" PIPELINE, PIPELINE HEAD "augment_seed: 3"},
        {HEAD PIPELINE, "\xEF\xBB\xBF" HEAD PIPELINE},
        {HEAD PIPELINE,
         "{\"dataset\": \"photos\", \"pipeline\": [\"decode\", {\"random_resized_crop\": {\"size\": 224, "
         "\"ratio\": [\"3/4\", \"4/3\"]}}, {\"normalize\": \"imagenet\"}]}"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        fby_spec *one = parse(forms[i][0]), *other = parse(forms[i][1]);
        char *one_text = fby_spec_print(one), *other_text = fby_spec_print(other);
        cr_assert_str_eq(one_text, other_text);
        free(one_text);
        free(other_text);
        fby_spec_free(&one);
        fby_spec_free(&other);
    }
}

Test(spec, splits)
{
    fby_spec *spec = parse(HEAD PIPELINE "split: {part: [3/4, 1], seed: 18446744073709551615}\n");
    cr_assert_eq(spec->split.kind, FBY_SPLIT_PART);
    cr_assert_eq(spec->split.line, 3);
    cr_assert_eq(spec->split.low, 0.75);
    cr_assert_eq(spec->split.high, 1);
    cr_assert_eq(spec->split.seed, UINT64_MAX);
    fby_spec_free(&spec);

    spec = parse(HEAD PIPELINE "split: {ids: ../ids.txt}\n");
    cr_assert_eq(spec->split.kind, FBY_SPLIT_IDS);
    cr_assert_str_eq(spec->split.ids_path, "/data/../ids.txt");
    fby_spec_free(&spec);

    spec = parse(HEAD PIPELINE "split:\n  classes:\n    - tabby cat\n    - \"null\"\n    - 7\n");
    cr_assert_eq(spec->split.kind, FBY_SPLIT_CLASSES);
    cr_assert_eq(spec->split.class_count, 3);
    cr_assert_str_eq(spec->split.classes[0].name, "tabby cat");
    cr_assert_str_eq(spec->split.classes[1].name, "null");
    cr_assert_str_eq(spec->split.classes[2].name, "7");
    cr_assert_eq(spec->split.classes[2].line, 7);
    char *text = fby_spec_print(spec);
    cr_assert_not_null(strstr(text, "\nsplit: {classes: [\"tabby cat\", \"null\", \"7\"]}\n"), "%s", text);
    free(text);
    fby_spec_free(&spec);
}

Test(spec, wrong_splits_are_refused)
{
    const char *part = "expected a part above 0 up to 1, such as 0.8, or [low, high], 0 <= low < high <= 1";
    static const char *const parts[] = {"{part: 0}",           "{part: 1.01}",       "{part: -0.5}",
                                        "{part: half}",        "{part: }",           "{part: []}",
                                        "{part: [0.5]}",       "{part: [0, 1, 2]}",  "{part: [0.1, 2]}",
                                        "{part: [-0.1, 0.5]}", "{part: [x, 0.5]}",   "{part: [[0], 0.5]}",
                                        "{part: {low: 0}}",    "{part: [0.5, 0.5]}", "{part: [0.8, 0.2]}"};
    char text[500];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(text, sizeof text, HEAD "split: %s\n" PIPELINE, parts[i]);
        refused(text, part);
        refused(text, "s.yaml:2: split.part: ");
    }
    refused(HEAD "split: {part: [0.8, 0.2]}\n" PIPELINE,
            "split.part: the first isn't below the second; expected");
    refused(HEAD "split:\n  part: [0.8,\n    1.5]\n" PIPELINE, "s.yaml:4: split.part: \"1.5\"; expected");
    refused(HEAD "split: {part: 0.5, seed: x}\n" PIPELINE,
            "split.seed: \"x\"; expected a whole number, 0 to 18446744073709551615");
    refused(HEAD "split:\n" PIPELINE, "s.yaml:2: split: nothing; expected all, {part: 0.8, seed: 0}, {ids: "
                                      "path} or {classes: [name, ...]}");
    refused(HEAD "split: 0.8\n" PIPELINE, "split: \"0.8\"; expected all, {part: 0.8");
    refused(HEAD "split: [a, b]\n" PIPELINE, "split: a list; expected all");
    refused(HEAD "split: {}\n" PIPELINE, "split: none of part, ids and classes; expected one of them");
    refused(HEAD "split: {seed: 3}\n" PIPELINE, "split: none of part, ids and classes; expected one of them");
    refused(HEAD "split: {clases: [a]}\n" PIPELINE, "s.yaml:2: split: unknown key \"clases\"; expected part, "
                                                    "ids, classes or seed; did you mean classes?");
    refused(HEAD "split: {all: 1}\n" PIPELINE,
            "split: unknown key \"all\"; expected part, ids, classes or seed");
    refused(HEAD "split:\n  part: 0.5\n  ids: a.txt\n" PIPELINE,
            "s.yaml:4: split: part and ids together; expected one of part, ids and classes");
    refused(HEAD "split: {ids: a.txt, seed: 1}\n" PIPELINE,
            "split.seed: ids needs no seed; expected it with part only");
    refused(HEAD "split: {seed: 1, classes: [a]}\n" PIPELINE, "split.seed: classes needs no seed; expected");
    refused(HEAD "split: {ids: }\n" PIPELINE, "split.ids: nothing; expected a path");
    refused(HEAD "split: {ids: [1, 2]}\n" PIPELINE, "split.ids: a list; expected a path");
    refused(HEAD "split: {classes: []}\n" PIPELINE, "split.classes: no classes; expected one at least");
    refused(HEAD "split: {classes: cat}\n" PIPELINE,
            "split.classes: \"cat\"; expected a list of classes, such as [cat, dog]");
    refused(HEAD "split: {classes: [a, ~, b]}\n" PIPELINE, "expected a class's name, or its label");
    refused(HEAD "split: {classes: [a, '']}\n" PIPELINE, "split.classes: \"\"; expected a class's name");
    refused(HEAD "split: {classes: [{a: b}]}\n" PIPELINE, "split.classes: a map; expected a class's name");
    refused(HEAD "split:\n  classes:\n  - a\n  - b\n  - 'a'\n" PIPELINE,
            "s.yaml:6: split.classes: \"a\" is given twice, first in line 4; expected it once");

    char *many = malloc(FBY_SPEC_BYTES);
    strcpy(many, HEAD PIPELINE "split: {classes: [");
    for (int i = 0; i <= FBY_SPLIT_CLASSES_MOST; i++) sprintf(many + strlen(many), "%d,", i);
    strcat(many, "]}\n");
    refused(many, "split.classes: 2049 classes; expected at most 2048: a file of ids has no such limit");
    free(many);
}

Test(spec, unknown_names_are_refused_with_the_nearest)
{
    refused(HEAD "pipelin: []\n" PIPELINE, "s.yaml:2: unknown key \"pipelin\"; expected dataset,");
    refused(HEAD "pipelin: []\n" PIPELINE, "did you mean pipeline?");
    refused(HEAD "Order: strict\n" PIPELINE, "did you mean order?");
    refused(HEAD "order: strickt\n" PIPELINE, "s.yaml:2: order: unknown value \"strickt\"; expected shared, "
                                              "strict or sequential; did you mean strict?");
    refused(HEAD "on_error: ignore\n" PIPELINE, "on_error: unknown value \"ignore\"; expected fail or skip");
    refused(HEAD "batch: {szie: 3}\n" PIPELINE,
            "batch: unknown key \"szie\"; expected size, drop_last or echo; did you mean size?");
    refused("dataset: {fodler: a}\n" PIPELINE, "did you mean folder?");
    refused(HEAD "pipeline:\n- decode\n- random_resize_crop: 224\n",
            "s.yaml:4: pipeline: unknown op \"random_resize_crop\"; expected cache, center_crop,");
    refused(HEAD "pipeline:\n- decode\n- random_resize_crop: 224\n", "did you mean random_resized_crop?");
    refused(HEAD "pipeline:\n- decode\n- resize: {sise: 224}\n",
            "s.yaml:4: pipeline.resize: unknown key \"sise\"; expected size, interpolation, pillow; did you "
            "mean size?");
    refused(HEAD "pipeline:\n- decode\n- resize: {size: 224, interpolation: bicubik}\n",
            "pipeline.resize.interpolation: \"bicubik\"; expected nearest, box, bilinear, bicubic or "
            "lanczos; did you "
            "mean bicubic?");
    refused(HEAD "pipeline: [decode, center_crop: 3, normalize: imagnet]\n", "did you mean imagenet?");
    refused(HEAD "pipeline: [decode, center_crop: 3, to: {dtype: float32}]\n",
            "pipeline.to.dtype: \"float32\"; expected u8, f16, bf16 or f32; did you mean f32?");
    refused(HEAD "pipeline: [decode, center_crop: 3, to: {dtype: half}]\n", "did you mean f16?");
    refused(HEAD "pipeline: [decode, center_crop: 3, to: {dtype: BFloat16}]\n", "did you mean bf16?");
    refused(HEAD "pipeline: [decode, center_crop: 3, to: {dtype: uint8}]\n", "did you mean u8?");
    refused(HEAD "pipeline: [decode, center_crop: 3, to: {dtype: float64}]\n",
            "expected u8, f16, bf16 or f32");
}

Test(spec, parts_of_later_versions_say_so)
{
    const char *texts[] = {"dataset: {tar: a.tar}\n" PIPELINE, HEAD "device: cuda\n" PIPELINE,
                           HEAD "pipeline: [device]\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) refused(texts[i], "not in this version");
}

Test(spec, echoes)
{
    fby_spec *spec = parse(HEAD "pipeline: [decode, echo: {factor: 2.5, buffer: 7}, center_crop: 3]\n");
    cr_assert_eq(spec->echo.kind, FBY_ECHO_SAMPLES);
    cr_assert_float_eq(spec->echo.factor, 2.5, 0);
    cr_assert_eq(spec->echo.buffer, 7);
    cr_assert_eq(spec->window, FBY_SPEC_WINDOW + 3, "what lies ready while fresh ones are made");
    fby_spec_free(&spec);
    spec = parse(HEAD "pipeline: [decode, echo: auto, center_crop: 3]\n");
    cr_assert_float_eq(spec->echo.factor, 0, 0);
    cr_assert_float_eq(spec->echo.max, 5, 0);
    fby_spec_free(&spec);
    spec = parse(HEAD "window: 2\npipeline: [decode, echo: 9, center_crop: 3]\n");
    cr_assert_eq(spec->window, 2);
    fby_spec_free(&spec);
    spec = parse(HEAD "batch: {size: 3, echo: 2}\n" PIPELINE);
    cr_assert_eq(spec->echo.kind, FBY_ECHO_BATCHES);
    cr_assert_eq(spec->echo.buffer, 8);
    fby_spec_free(&spec);
    spec = parse(HEAD PIPELINE);
    cr_assert_eq(spec->echo.kind, FBY_ECHO_NONE);
    fby_spec_free(&spec);

    refused(HEAD "pipeline: [decode, echo: 0.5, center_crop: 3]\n",
            "pipeline.echo.factor: \"0.5\"; expected a number, 1 to 64, or auto");
    refused(HEAD "pipeline: [decode, echo, center_crop: 3]\n", "pipeline.echo.factor: missing");
    refused(HEAD "pipeline: [decode, echo: 2, center_crop: 3, echo: 2]\n",
            "echoed already; expected one echo");
    refused(HEAD "order: strict\npipeline: [decode, echo: auto, center_crop: 3]\n",
            "auto emits as time goes, which no fixed order can");
    refused(
        HEAD "ranks: 2\npipeline: [decode, echo: auto, center_crop: 3]\n",
        "auto would give each rank another number of steps; expected steps_per_epoch, which is the same for "
        "all of them, a factor, or ranks: 1");
    refused(HEAD "batch: {size: 3, echo: 2}\npipeline: [decode, echo: 2, center_crop: 3]\n",
            "batch.echo is there too, in line 2; expected one of them");
    refused(HEAD "batch: {size: 3, echo: auto}\n" PIPELINE, "batch.echo.factor: \"auto\" is not a number");
}

Test(spec, steps_of_an_epoch)
{
    const char *text = HEAD "steps_per_epoch: 9\nranks: 2\nbatch: 8\n"
                            "pipeline: [decode, echo: {factor: auto, max: 2.5}, center_crop: 3]\n";
    fby_spec *spec = parse(text);
    cr_assert_eq(spec->steps_per_epoch, 9);
    cr_assert_eq(spec->steps_line, 2);
    /* 50 samples are 7 batches; 2.5 times as many, 125, are 15 whole ones and a part. */
    for (spec->steps_per_epoch = 7; spec->steps_per_epoch <= 16; spec->steps_per_epoch++) {
        cr_assert_eq(fby_spec_check_steps(spec, 50, NULL), FBY_OK);
        cr_assert_eq(fby_spec_steps_samples(spec, 50),
                     spec->steps_per_epoch < 16 ? spec->steps_per_epoch * 8 : 125);
    }
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_spec_check_steps(spec, 50, &error), FBY_EINVAL);
    cr_assert_str_eq(
        error.text, "s.yaml:2: steps_per_epoch: 17; an epoch for each of 2 ranks has 50 fresh samples: 7 "
                    "batches of 8, or 16 where each comes 2.5 times (`max`); expected 7 to 16, another batch "
                    "size, or a larger `max`");
    spec->steps_per_epoch = 6;
    cr_assert_eq(fby_spec_check_steps(spec, 50, NULL), FBY_EINVAL);
    spec->steps_per_epoch = UINT64_MAX / 4;
    cr_assert_eq(fby_spec_check_steps(spec, 50, NULL), FBY_EINVAL);
    spec->drop_last = true;
    spec->steps_per_epoch = 15;
    cr_assert_eq(fby_spec_check_steps(spec, 48, NULL), FBY_OK);
    spec->steps_per_epoch = 16;
    cr_assert_eq(fby_spec_check_steps(spec, 48, NULL), FBY_EINVAL, "120 samples");
    spec->steps_per_epoch = 0;
    cr_assert_eq(fby_spec_check_steps(spec, 48, NULL), FBY_OK, "none is said");
    fby_spec_free(&spec);

    refused(HEAD "steps_per_epoch: 9\n" PIPELINE,
            "s.yaml:2: steps_per_epoch: 9, but the number of samples says how many batches an epoch has; "
            "expected unset, or echo: {factor: auto} in the pipeline");
    refused(HEAD "steps_per_epoch: 9\npipeline: [decode, echo: 2, center_crop: 3]\n",
            "the number of samples and the echo's factor say how many");
    refused(HEAD "batch: {size: 3, echo: 2}\nsteps_per_epoch: 9\n" PIPELINE,
            "s.yaml:3: steps_per_epoch: 9, but");
    refused(HEAD "steps_per_epoch: 9\norder: strict\npipeline: [decode, echo: auto, center_crop: 3]\n",
            "auto emits as time goes, which no fixed order can");
}

Test(spec, caches)
{
    fby_spec *spec = parse(HEAD "pipeline: [cache: 1GiB, decode, cache: {memory: 1.5G}, center_crop: 3]\n");
    cr_assert_eq(((const fby_cache_params *)spec->ops[0].params)->memory, 1u << 30);
    cr_assert_eq(((const fby_cache_params *)spec->ops[2].params)->memory, 3u << 29);
    fby_spec_free(&spec);
    refused(HEAD "pipeline: [decode, cache, center_crop: 3]\n", "pipeline.cache.memory: missing");
    refused(HEAD "pipeline: [decode, cache: much, center_crop: 3]\n",
            "pipeline.cache.memory: \"much\"; expected a size from 1MiB, such as 500MiB or 40GiB");
    refused(HEAD "pipeline: [decode, random_resized_crop: 3, cache: 1GiB]\n",
            "pipeline.cache: an op before it is random, so that its result differs in every epoch");
    refused(HEAD "pipeline: [decode, center_crop: 3, to, cache: 1GiB]\n",
            "the samples are finished; expected cache before to");
}

Test(spec, values_out_of_range_are_refused)
{
    refused(HEAD "window: 0\n" PIPELINE, "s.yaml:2: window: \"0\"; expected a whole number, 1 to 1024");
    refused(HEAD "batch: 0\n" PIPELINE, "batch: \"0\"; expected a whole number, 1 to 4096");
    refused(HEAD "batch: {size: 4097}\n" PIPELINE,
            "batch.size: \"4097\"; expected a whole number, 1 to 4096");
    refused(HEAD "batch: [3]\n" PIPELINE, "batch: a list; expected a size");
    refused(HEAD "batch: {drop_last: yes}\n" PIPELINE, "batch.drop_last: \"yes\"; expected true or false");
    refused(HEAD "ranks: 1025\n" PIPELINE, "ranks: \"1025\"; expected a whole number, 1 to 1024");
    refused(HEAD "seed: -1\n" PIPELINE, "seed: \"-1\"; expected a whole number, 0 to 18446744073709551615");
    refused(HEAD "seed: 18446744073709551616\n" PIPELINE, "seed: ");
    refused(HEAD "seed: {}\n" PIPELINE, "seed: a map; expected");
    refused(HEAD "seed:\n" PIPELINE, "seed: nothing; expected");
    refused(HEAD "epochs: 0\n" PIPELINE,
            "epochs: \"0\"; expected a whole number of at least 1, or unlimited");
    refused(HEAD "steps_per_epoch: x\n" PIPELINE,
            "steps_per_epoch: \"x\"; expected a whole number of at least 1, or unset");
    refused(HEAD "max_errors: 1.5\n" PIPELINE, "max_errors: \"1.5\"; expected a part of an epoch");
    refused(HEAD "max_errors: -0.1\n" PIPELINE, "max_errors: ");
    refused(HEAD "max_errors: nan\n" PIPELINE, "max_errors: ");
    refused(HEAD "sample_timeout: 30\n" PIPELINE, "sample_timeout: \"30\"; expected a duration");
    refused(HEAD "sample_timeout: 25h\n" PIPELINE, "sample_timeout: ");
    refused(HEAD "sample_timeout: 0s\n" PIPELINE, "sample_timeout: ");
    refused(HEAD "sample_timeout: 0.0001s\n" PIPELINE, "sample_timeout: ");
    refused(HEAD "sample_timeout: 3 s\n" PIPELINE, "sample_timeout: ");
    refused(HEAD "order: []\n" PIPELINE, "order: a list; expected shared, strict or sequential");
    refused(HEAD "pipeline: [decode, random_resized_crop: {size: 8, scale: [1, 0.5]}]\n",
            "pipeline.random_resized_crop.scale: the first is above the second; expected [low, high]");
    refused(HEAD "pipeline: [decode, random_resized_crop: {size: 8, scale: [0, 1]}]\n", "0 is out of range");
    refused(HEAD "pipeline: [decode, random_resized_crop: {size: 8, ratio: 1}]\n", "expected [low, high]");
    refused(HEAD "pipeline: [decode, random_resized_crop: {size: 8, ratio: [1, 2, 3]}]\n",
            "the wrong number of values");
    refused(HEAD "pipeline: [decode, random_resized_crop: {size: 8, ratio: [1, 3/0]}]\n",
            "\"3/0\" is not a number");
    refused(HEAD "pipeline: [decode, random_resized_crop]\n",
            "pipeline.random_resized_crop.size: missing; expected both sides");
    refused(HEAD "pipeline: [decode, center_crop: 3, random_horizontal_flip: 1.5]\n",
            "pipeline.random_horizontal_flip.p: 1.5 is out of range; expected a number, 0 to 1");
    refused(HEAD "pipeline: [decode, center_crop: 0]\n",
            "pipeline.center_crop.size: \"0\"; expected whole pixels, 1 to 16384");
    refused(HEAD "pipeline: [decode, center_crop: [1, 2, 3]]\n",
            "pipeline.center_crop.size: a list; expected");
    refused(HEAD "pipeline: [decode: {max_pixels: 0}, center_crop: 3]\n",
            "pipeline.decode.max_pixels: \"0\"; expected a whole number");
    refused(HEAD "pipeline: [decode: {fast: 1}, center_crop: 3]\n",
            "pipeline.decode.fast: \"1\"; expected true or false");
    refused(HEAD "pipeline: [decode, center_crop: 3, normalize: {mean: [0, 0, 0], std: [1, 0, 1]}]\n",
            "pipeline.normalize: std is 0 for green; expected three numbers above 0");
    refused(HEAD "pipeline: [decode, center_crop: 3, normalize: {mean: [0, 0], std: [1, 1, 1]}]\n",
            "expected [red, green, blue]");
    refused(HEAD "pipeline: [decode, center_crop: 3, normalize: {mean: [0, 0, .inf], std: [1, 1, 1]}]\n",
            "is not a number");
    refused(HEAD "pipeline: [decode, center_crop: 3, normalize]\n", "pipeline.normalize.mean: missing");
}

Test(spec, values_of_padding_and_colours_are_refused)
{
    refused(
        HEAD "pipeline:\n- decode\n- center_crop: 3\n- pad: {padding: [1, 2, 3]}\n",
        "s.yaml:5: pipeline.pad.padding: 3 values; expected whole pixels: one number for all sides, [left "
        "and right, top and bottom] or [left, top, right, bottom]");
    refused(HEAD "pipeline: [decode, center_crop: 3, pad: -1]\n",
            "pipeline.pad.padding: \"-1\"; expected whole pixels: one number for all sides, [left and right, "
            "top and bottom] or [left, top, right, bottom], 0 to 16384");
    refused(HEAD "pipeline: [decode, center_crop: 3, pad: [1, []]]\n",
            "pipeline.pad.padding: a list; expected");
    refused(HEAD "pipeline: [decode, center_crop: 3, pad: []]\n", "pipeline.pad.padding: 0 values; expected");
    refused(HEAD "pipeline: [decode, center_crop: 3, pad]\n", "pipeline.pad.padding: missing; expected");
    refused(HEAD "pipeline:\n- decode\n- center_crop: 3\n- pad:\n    padding: 1\n    fill: 256\n",
            "s.yaml:7: pipeline.pad.fill: \"256\"; expected a level, or [red, green, blue], 0 to 255");
    refused(HEAD "pipeline: [decode, center_crop: 3, pad: {padding: 1, fill: [1, 2]}]\n",
            "pipeline.pad.fill: 2 values; expected a level, or [red, green, blue]");
    refused(
        HEAD "pipeline: [decode, center_crop: 3, pad: {padding: 1, padding_mode: reflct}]\n",
        "pipeline.pad.padding_mode: \"reflct\"; expected constant, edge, reflect or symmetric; did you mean "
        "reflect?");
    refused(
        HEAD "pipeline:\n- decode\n- center_crop: 3\n- color_jitter: {brightness: -0.1}\n",
        "s.yaml:5: pipeline.color_jitter.brightness: \"-0.1\"; expected a number, 0 to 1000, or [low, high], "
        "each 0 to 1000");
    refused(HEAD "pipeline: [decode, center_crop: 3, color_jitter: {contrast: [2, 1]}]\n",
            "pipeline.color_jitter.contrast: the first is above the second");
    refused(HEAD "pipeline: [decode, center_crop: 3, color_jitter: {saturation: [-1, 1]}]\n",
            "pipeline.color_jitter.saturation: -1 is out of range; expected [low, high], 0 to 1000");
    refused(
        HEAD "pipeline: [decode, center_crop: 3, color_jitter: {hue: 0.6}]\n",
        "pipeline.color_jitter.hue: \"0.6\"; expected a number, 0 to 0.5, or [low, high], each -0.5 to 0.5");
    refused(HEAD "pipeline: [decode, center_crop: 3, color_jitter: {hue: red}]\n",
            "pipeline.color_jitter.hue: \"red\"; expected a number");
    refused(HEAD "pipeline: [decode, center_crop: 3, color_jitter: 0.4]\n",
            "pipeline.color_jitter: \"0.4\"; expected a map {brightness: …}");
    refused(HEAD "pipeline: [decode, center_crop: 3, grayscale: {channels: 1}]\n",
            "pipeline.grayscale: unknown key \"channels\"; expected num_output_channels");
    refused(HEAD "pipeline: [decode, center_crop: 3, grayscale: 2]\n",
            "pipeline.grayscale.num_output_channels: \"2\"; expected 3 or 1");
    refused(HEAD "pipeline: [decode, center_crop: 3, grayscale: [1]]\n",
            "pipeline.grayscale.num_output_channels: a list; expected 3 or 1");
}

Test(spec, padding_and_colours_in_every_form)
{
    fby_spec *spec = parse(
        HEAD
        "pipeline: [decode, pad: 3, pad: [1, 2], pad: {padding: [1, 2, 3, 4], fill: [9, 8, 7]}, "
        "color_jitter: {brightness: 0.5, contrast: 1.5, saturation: [0, 2], hue: 0.25}, random_crop: 8]\n");
    static const char *const expected[] = {
        "- pad: {padding: 3, fill: 0, padding_mode: constant}",
        "- pad: {padding: [1, 2, 1, 2], fill: 0, padding_mode: constant}",
        "- pad: {padding: [1, 2, 3, 4], fill: [9, 8, 7], padding_mode: constant}",
        ("- color_jitter: {brightness: [0.5, 1.5], contrast: [0, 2.5], saturation: [0, 2], hue: [-0.25, "
         "0.25], augment_seed: 0}"),
        ("- random_crop: {size: 8, padding: 0, pad_if_needed: false, fill: 0, padding_mode: constant, "
         "augment_seed: 0}")};
    char *text = fby_spec_print(spec);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        cr_assert_not_null(strstr(text, expected[i]), "no %s in %s", expected[i], text);
    free(text);
    fby_spec_free(&spec);
}

Test(spec, sizes_through_padding_are_known)
{
    fby_spec *spec = parse(HEAD "pipeline: [decode, center_crop: [40, 30], pad: [1, 2, 3, 4], grayscale]\n");
    fby_shape shape;
    cr_assert_eq(fby_spec_infer(spec, &shape, NULL), FBY_OK);
    cr_assert_eq(shape.w, 34);
    cr_assert_eq(shape.h, 46);
    fby_spec_free(&spec);
    spec = parse(HEAD "pipeline: [decode, center_crop: 32, random_crop: {size: 34, padding: 1}]\n");
    fby_spec_free(&spec);
    spec = parse(HEAD "pipeline: [decode, center_crop: 32, random_crop: {size: 99, pad_if_needed: true}]\n");
    fby_spec_free(&spec);

    refused(HEAD "pipeline:\n- decode\n- center_crop: 32\n- random_crop: {size: 35, padding: 1}\n",
            "s.yaml:5: pipeline.random_crop: a crop of 35 x 35 doesn't fit the picture, which is 34 x 34 "
            "with its "
            "padding; expected a smaller size, or pad_if_needed: true");
    refused(HEAD "pipeline: [decode, center_crop: 16384, pad: 16384, pad: 16384]\n",
            "pipeline.pad: the padded picture would be 81920 x 81920; expected sides of at most 65535");
    refused(HEAD "pipeline:\n- decode\n- pad: 3\n",
            "s.yaml:3: pipeline.decode: samples come out in different sizes");
    refused(
        HEAD "pipeline: [decode, center_crop: 3, normalize: imagenet, color_jitter: {hue: 0.1}]\n",
        "pipeline.color_jitter: the samples are normalized already; expected color_jitter before normalize");
    refused(HEAD "pipeline: [grayscale]\n", "expected decode before grayscale");
}

Test(spec, one_channel)
{
    const char *const pipelines[] = {
        "grayscale: 1", "grayscale: {num_output_channels: 1}, normalize: {mean: 0.5, std: [0.25]}",
        "grayscale: 1, pad: {padding: 1, fill: 9}",
        "grayscale: 1, pad: {padding: 1, fill: [1, 2, 3], padding_mode: edge}"};
    char text[300];
    fby_shape shape;
    for (size_t i = 0; i < sizeof pipelines / sizeof *pipelines; i++) {
        snprintf(text, sizeof text, HEAD "pipeline: [decode, center_crop: 3, %s]\n", pipelines[i]);
        fby_spec *spec = parse(text);
        cr_assert_eq(fby_spec_infer(spec, &shape, NULL), FBY_OK);
        cr_assert_eq(shape.channels, 1);
        fby_spec_free(&spec);
    }
    fby_spec *spec =
        parse(HEAD "pipeline: [decode, center_crop: 3, grayscale: 1, grayscale: 3, normalize: imagenet]\n");
    cr_assert_eq(fby_spec_infer(spec, &shape, NULL), FBY_OK);
    cr_assert_eq(shape.channels, 3);
    fby_spec_free(&spec);
    refused(HEAD "pipeline: [decode, center_crop: 3, grayscale: 1, normalize: imagenet]\n",
            "pipeline.normalize: the samples have one channel, and mean or std three values; expected one of "
            "each");
    refused(HEAD "pipeline: [decode, center_crop: 3, grayscale: 1, pad: {padding: 1, fill: [1, 2, 3]}]\n",
            "pipeline.pad: the samples have one channel, and fill three levels; expected one level");
    refused(HEAD "pipeline: [decode, grayscale: 1, random_crop: {size: 3, fill: [1, 2, 3]}]\n",
            "pipeline.random_crop: the samples have one channel");
}

Test(spec, pipelines_that_cannot_be_are_refused)
{
    refused(HEAD, "s.yaml:1: pipeline: missing; expected a list of ops");
    refused(PIPELINE, "s.yaml:1: dataset: missing; expected a folder's path");
    refused(HEAD "pipeline: []\n", "pipeline: no ops; expected");
    refused(HEAD "pipeline: decode\n", "pipeline: \"decode\"; expected a list of ops");
    refused(HEAD "pipeline: [[decode]]\n", "pipeline: a list; expected an op's name");
    refused(HEAD "pipeline:\n- decode\n- resize:\n  size: 3\n",
            "s.yaml:4: pipeline: 2 keys in one entry; expected one op each");
    refused(HEAD "pipeline: [resize: [3, 3]]\n",
            "pipeline.resize: the samples are still encoded; expected decode before resize");
    refused(HEAD "pipeline: [decode, decode]\n", "pipeline.decode: the samples are decoded already");
    refused(HEAD "pipeline:\n- decode\n- to: {}\n- center_crop: 3\n",
            "s.yaml:5: pipeline.center_crop: the samples are finished");
    refused(HEAD "pipeline: [decode, normalize: imagenet, center_crop: 3]\n",
            "expected center_crop before normalize");
    refused(HEAD "pipeline: [decode, center_crop: 3, normalize: imagenet, normalize: imagenet]\n",
            "expected one normalize");
    refused(HEAD "pipeline: [decode, center_crop: 3, normalize: imagenet, to: {dtype: u8}]\n",
            "normalized samples don't fit u8");
    refused(HEAD "pipeline: [random_horizontal_flip: 0.5]\n",
            "expected decode before random_horizontal_flip");
    refused(HEAD "pipeline:\n- decode\n- normalize: imagenet\n",
            "s.yaml:3: pipeline.decode: samples come out in different sizes, and a batch needs one; expected "
            "random_resized_crop: SIZE");
    refused(
        HEAD "pipeline:\n- decode\n- resize: 256\n- random_horizontal_flip\n",
        "s.yaml:4: pipeline.resize: samples come out in different sizes (only the shorter side is fixed)");
    refused("dataset: {}\n" PIPELINE, "dataset: neither folder nor list; expected one of them");
    refused("dataset: {folder: a, list: b}\n" PIPELINE, "dataset: folder and list together");
    refused("dataset: []\n" PIPELINE, "dataset: a list; expected a folder's path");
    refused("dataset: {folder: }\n" PIPELINE, "dataset.folder: nothing; expected a path");
    refused("dataset: ''\n" PIPELINE, "dataset: \"\"; expected a path");

    char text[4096] = HEAD "pipeline: [decode, center_crop: 8";
    for (int i = 0; i < 70; i++) strcat(text, ", random_vertical_flip");
    strcat(text, "]\n");
    refused(text, "pipeline: 72 ops; expected at most 63");
}

Test(spec, a_size_that_is_known_stays_known)
{
    fby_spec *spec = parse(HEAD "pipeline: [decode, center_crop: [40, 30], resize: 15]\n");
    fby_shape shape;
    cr_assert_eq(fby_spec_infer(spec, &shape, NULL), FBY_OK);
    cr_assert_eq(shape.w, 15);
    cr_assert_eq(shape.h, 20);
    fby_spec_free(&spec);
}

Test(spec, what_is_not_plain_yaml_is_refused)
{
    refused("", "s.yaml:1: it is empty; expected a map");
    refused("# nothing\n", "it is empty");
    refused("- a\n", "a list; expected a map with dataset and pipeline");
    refused("hello\n", "\"hello\"; expected a map with dataset and pipeline");
    refused(HEAD "seed: &a 3\nepochs: *a\n", "s.yaml:2: an anchor (&name); expected plain values");
    refused(HEAD "seed: *a\n", "s.yaml:2: an alias (*name); expected the value itself");
    refused(HEAD "seed: !!int 3\n", "a tag (!name); expected plain values");
    refused(HEAD PIPELINE "---\n" HEAD, "a second document begins; expected one spec per file");
    refused(HEAD "seed: 1\nseed: 2\n", "s.yaml:3: seed: given twice, first in line 2; expected it once");
    refused(HEAD "pipeline: [resize: {size: 3, size: 3}]\n", "size: given twice");
    refused(HEAD "? [a]\n: 3\n", "a key is a list or a map; expected a name");
    refused(HEAD "pipeline: [decode\n", "not valid YAML");
    refused(HEAD "batch:\n\tsize: 3\n",
            "s.yaml:3: not valid YAML: a tab in the indentation; expected spaces");
    refused(HEAD "\tbatch: 3\n", "s.yaml:2: not valid YAML: a tab in the indentation");
    refused("\tdataset: a\n" PIPELINE, "s.yaml:1: not valid YAML: a tab in the indentation");
    refused(HEAD "a: b: c\n", "s.yaml:2: not valid YAML");
    refused(HEAD "seed: \"a\\0b\"\n", "a text holds a NUL character");
    refused("dataset: \xFF\xFE\n", "s.yaml:1: byte 9 is not text in UTF-8");
    refused("a: b\nc: \xED\xA0\x80\n", "s.yaml:2: byte 8 is not text in UTF-8");
    refused("a: \xC0\x80\n", "is not text in UTF-8");
    refused("a: [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]\n", "nested too deeply; expected at most 16 levels");
    refused("\"a\\nb\": 3\n", "unknown key \"a?b\"");
}

Test(spec, quoted_paths)
{
    const char *texts[][2] = {
        {"dataset: 'it''s'\n" PIPELINE, "/data/it's"},
        {"'dataset': ''''\n" PIPELINE, "/data/'"},
        {"\xEF\xBB\xBF'dataset': '\xC3\xA9''\xC3\xA9'''\n" PIPELINE, "/data/\xC3\xA9'\xC3\xA9'"},
        {"dataset: \"\\u00e9\\\"\"\n" PIPELINE, "/data/\xC3\xA9\""},
        {"{dataset: {folder: 'a b'''}, pipeline: [decode, center_crop: '3']}", "/data/a b'"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fby_spec *spec = parse(texts[i][0]);
        cr_assert_str_eq(spec->dataset_path, texts[i][1]);
        fby_spec_free(&spec);
    }
    refused("dataset: 'a\n  b'\n" PIPELINE,
            "s.yaml:1: a text in '…' over several lines; expected it on one line");
}

Test(spec, size_is_bounded)
{
    fby_error error = FBY_ERROR_INIT;
    fby_spec *spec;
    size_t length = FBY_SPEC_BYTES + 1;
    char *text = malloc(length);
    memset(text, ' ', length);
    cr_assert_eq(fby_spec_parse(&spec, "s", text, length, "/", &error), FBY_EINVAL);
    cr_assert_not_null(strstr(error.text, "65537 bytes; expected a spec of at most 65536"), "%s", error.text);
    memset(text, '[', length);
    cr_assert_eq(fby_spec_parse(&spec, "s", text, FBY_SPEC_BYTES, "/", &error), FBY_EINVAL);
    text[0] = 'a';
    text[1] = ':';
    text[2] = ' ';
    text[3] = '[';
    for (size_t i = 4; i < FBY_SPEC_BYTES; i++) text[i] = i & 1 ? ',' : 'b';
    cr_assert_eq(fby_spec_parse(&spec, "s", text, FBY_SPEC_BYTES, "/", &error), FBY_EINVAL);
    cr_assert_not_null(strstr(error.text, "too many values; expected at most 4096"), "%s", error.text);
    for (size_t i = 0; i + 8 < FBY_SPEC_BYTES; i += 8) snprintf(text + i, 9, "%06zx:\n", i);
    cr_assert_eq(fby_spec_parse(&spec, "s", text, FBY_SPEC_BYTES - 8, "/", &error), FBY_EINVAL);
    free(text);
}

Test(spec, numbers_do_not_depend_on_the_locale)
{
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) setlocale(LC_ALL, "C.UTF-8");
    fby_spec *spec = parse(HEAD "max_errors: 0.25\n" PIPELINE);
    cr_assert_eq(spec->max_errors, 0.25);
    char *text = fby_spec_print(spec);
    cr_assert_not_null(strstr(text, "max_errors: 0.25"));
    free(text);
    fby_spec_free(&spec);
    setlocale(LC_ALL, "C");
}

Test(spec, nearest)
{
    static const char *const names[] = {"decode", "resize", "to"};
    cr_assert_str_eq(fby_name_nearest("decoed", names, 3), "decode");
    cr_assert_str_eq(fby_name_nearest("RESIZE", names, 3), "resize");
    cr_assert_str_eq(fby_name_nearest("resizes", names, 3), "resize");
    cr_assert_str_eq(fby_name_nearest("too", names, 3), "to");
    cr_assert_null(fby_name_nearest("crop", names, 3));
    cr_assert_null(fby_name_nearest("", names, 3));
    cr_assert_null(fby_name_nearest("x", names, 3));
    char longest[200];
    memset(longest, 'd', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    cr_assert_null(fby_name_nearest(longest, names, 3));
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

Test(spec, load)
{
    char folder[] = "/tmp/fby_test_spec_XXXXXX", path[100], expected[200];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/train.yaml", folder);
    write_file(path, HEAD PIPELINE);
    fby_spec *spec = NULL;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_spec_load(&spec, path, &error), FBY_OK, "%s", error.text);
    snprintf(expected, sizeof expected, "%s/photos", folder);
    cr_assert_str_eq(spec->dataset_path, expected);
    cr_assert_str_eq(spec->name, "train.yaml");
    fby_spec_free(&spec);

    write_file(path, HEAD "windwo: 3\n" PIPELINE);
    cr_assert_eq(fby_spec_load(&spec, path, &error), FBY_EINVAL);
    cr_assert(!strncmp(error.text, "train.yaml:2: unknown key \"windwo\"", 34), "%s", error.text);
    cr_assert_eq(fby_spec_load(&spec, folder, &error), FBY_EINVAL);
    cr_assert_not_null(strstr(error.text, "a folder; expected a spec"), "%s", error.text);
    unlink(path);
    cr_assert_eq(fby_spec_load(&spec, path, &error), FBY_EIO);
    cr_assert_not_null(strstr(error.text, "No such file"), "%s", error.text);
    cr_assert_null(spec);
    rmdir(folder);
}

Test(spec, the_base_must_be_absolute)
{
    fby_spec *spec;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_spec_parse(&spec, "s", HEAD PIPELINE, strlen(HEAD PIPELINE), "here", &error),
                 FBY_EINVAL);
    cr_assert_eq(fby_spec_parse(&spec, "s", HEAD PIPELINE, strlen(HEAD PIPELINE), NULL, &error), FBY_EINVAL);
}
