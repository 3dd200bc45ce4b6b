/* Decoders of different threads share nothing: the pixels of many at once are those of one. */
#include <pthread.h>
#include <stdlib.h>

#include "codec/decode.h"
#include "tests/codec/sample_files.h"
#include "tests/support/test.h"

enum { THREADS = 4, ROUNDS = 8 };

typedef struct job {
    const sample_file *files;
    size_t count;
    size_t first;
    uint64_t sums[SAMPLE_FILES_MOST];
    bool differed;
} job;

static uint64_t sum_of(fby_decoder *decoder, const sample_file *file)
{
    fby_picture_info info;
    uint64_t sum = 14695981039346656037u;
    fby_reason reason = fby_decode_open(decoder, file->bytes, file->length, NULL, &info);

    if (reason) return reason;
    size_t length = (size_t)info.w * info.h * 3;
    uint8_t *pixels = calloc(1, length);
    reason = fby_decode_into(decoder, NULL, pixels, (size_t)info.w * 3);
    for (size_t i = 0; i < length; i++) sum = (sum ^ pixels[i]) * 1099511628211u;
    free(pixels);
    return reason ? reason : sum;
}

static void *run(void *argument)
{
    job *j = argument;
    fby_decoder *decoder = NULL;

    if (fby_decoder_create(&decoder)) abort();
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < j->count; i++) {
            size_t at = (i + j->first) % j->count;
            j->differed |= sum_of(decoder, &j->files[at]) != j->sums[at];
        }
    }
    fby_decoder_destroy(&decoder);
    return NULL;
}

Test(decode, threads_are_independent, .timeout = 60)
{
    sample_file files[SAMPLE_FILES_MOST];
    size_t count = sample_files_read(files);
    static job jobs[THREADS];
    pthread_t threads[THREADS];
    fby_decoder *decoder = NULL;

    cr_assert_eq(fby_decoder_create(&decoder), 0);
    for (size_t i = 0; i < count; i++) {
        uint64_t sum = sum_of(decoder, &files[i]);
        for (int t = 0; t < THREADS; t++) jobs[t].sums[i] = sum;
    }
    fby_decoder_destroy(&decoder);

    for (int t = 0; t < THREADS; t++) {
        jobs[t].files = files;
        jobs[t].count = count;
        jobs[t].first = (size_t)t * count / THREADS;
        cr_assert_eq(pthread_create(&threads[t], NULL, run, &jobs[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        cr_assert(!jobs[t].differed, "thread %d", t);
    }
    sample_files_free(files, count);
}
