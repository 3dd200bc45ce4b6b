/* Preloaded into a server: jpeg_start_decompress doesn't come back from a picture that is FBY_STUCK_WIDTH
 * wide for FBY_STUCK_SECONDS (default: a year), or, where FBY_CRASH_WIDTH says so, crashes. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <jpeglib.h>

static long number_of(const char *name, long otherwise)
{
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}

static pthread_once_t found = PTHREAD_ONCE_INIT;
static boolean (*real)(j_decompress_ptr);

static void real_find(void)
{
    *(void **)&real = dlsym(RTLD_NEXT, "jpeg_start_decompress");
}

__attribute__((visibility("default"))) boolean jpeg_start_decompress(j_decompress_ptr picture)
{
    pthread_once(&found, real_find);
    if ((long)picture->image_width == number_of("FBY_CRASH_WIDTH", -1)) raise(SIGSEGV);
    if ((long)picture->image_width == number_of("FBY_STUCK_WIDTH", -1)) {
        struct timespec left = {number_of("FBY_STUCK_SECONDS", 31536000), 0};
        while (nanosleep(&left, &left)) continue;
    }
    return real(picture);
}
