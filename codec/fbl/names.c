#include <forebay/fbl.h>

const char *fby_fbl_reason_name(int reason)
{
    switch (reason) {
    case FBY_FBL_OK:
        return "ok";
    case FBY_FBL_FORMAT:
        return "format";
    case FBY_FBL_TRUNCATED:
        return "truncated";
    case FBY_FBL_CORRUPT:
        return "corrupt";
    case FBY_FBL_UNSUPPORTED:
        return "unsupported";
    case FBY_FBL_TOO_LARGE:
        return "too large";
    case FBY_FBL_MEMORY:
        return "memory";
    case FBY_FBL_REGION:
        return "region";
    case FBY_FBL_ARGUMENT:
        return "argument";
    case FBY_FBL_VERIFY:
        return "verify";
    default:
        return "unknown";
    }
}
