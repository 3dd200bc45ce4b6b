/* echo: emits what reaches it several times, so that the stages after it run afresh on each (data echoing,
 * Choi et al., arXiv 1907.05550). A mark: it changes no pixel. */
#include "dataplane/ops/op.h"

static const fby_param list[] = {
    {"factor", FBY_PARAM_TIMES, offsetof(fby_echo_params, factor), NULL, 1, FBY_ECHO_MOST, NULL,
     "how many times each sample is emitted, on average; `auto`: again only where the task would wait"},
    {"max", FBY_PARAM_REAL, offsetof(fby_echo_params, max), "5", 1, FBY_ECHO_MOST, NULL,
     "`auto`: how many times at most"},
    {"buffer", FBY_PARAM_INT, offsetof(fby_echo_params, buffer), "1024", 1, 1 << 24, NULL,
     "samples that wait to be emitted again, which is at random from among them; a batch at least"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    (void)p;
    if (shape->echoed)
        return fby_fail(error, FBY_EINVAL, "the samples are echoed already; expected one echo");
    shape->echoed = true;
    return FBY_OK;
}

const fby_op fby_op_echo = {.name = "echo",
                            .kind = FBY_OP_ECHO,
                            .version = 1,
                            .about =
                                "emits each sample several times; what stands after it runs afresh each time",
                            .params = list,
                            .param_count = sizeof list / sizeof *list,
                            .params_bytes = sizeof(fby_echo_params),
                            .shorthand = "factor",
                            .infer = infer};
