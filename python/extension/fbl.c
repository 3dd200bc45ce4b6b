/* _forebay_fbl: FBL pictures for forebay/fbl.py. Memory comes as addresses, since the buffer protocol isn't
 * in the stable ABI of 3.9: fbl.py makes them from numpy arrays that it holds, and has checked their shapes.
 */
#include "python/extension/python.h"

#include <forebay/fbl.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLES_KEPT = 16, MOST_CHUNKS = 64 };

/* Handles keep memory for the next picture, so a few are kept; the interpreter's lock guards the list. */
static struct {
    fby_fbl_encoder *encoder[HANDLES_KEPT];
    fby_fbl_decoder *decoder[HANDLES_KEPT];
    int encoders, decoders;
} kept;

static PyObject *failure; /* forebay.fbl's exception, borrowed for ever */

static fby_fbl_encoder *encoder_take(void)
{
    fby_fbl_encoder *encoder = NULL;
    if (kept.encoders) return kept.encoder[--kept.encoders];
    if (fby_fbl_encoder_create(&encoder)) PyErr_NoMemory();
    return encoder;
}

static void encoder_give(fby_fbl_encoder *encoder)
{
    if (kept.encoders < HANDLES_KEPT)
        kept.encoder[kept.encoders++] = encoder;
    else
        fby_fbl_encoder_destroy(&encoder);
}

static fby_fbl_decoder *decoder_take(void)
{
    fby_fbl_decoder *decoder = NULL;
    if (kept.decoders) return kept.decoder[--kept.decoders];
    if (fby_fbl_decoder_create(&decoder)) PyErr_NoMemory();
    return decoder;
}

static void decoder_give(fby_fbl_decoder *decoder)
{
    if (kept.decoders < HANDLES_KEPT)
        kept.decoder[kept.decoders++] = decoder;
    else
        fby_fbl_decoder_destroy(&decoder);
}

static PyObject *fail(int reason, const fby_error *error)
{
    if (reason == FBY_FBL_MEMORY) return PyErr_NoMemory();
    PyObject *exception = PyObject_CallFunction(failure, "s", error->text);
    PyObject *name = exception ? PyUnicode_FromString(fby_fbl_reason_name(reason)) : NULL;
    if (name && !PyObject_SetAttrString(exception, "reason", name)) PyErr_SetObject(failure, exception);
    Py_XDECREF(name);
    Py_XDECREF(exception);
    return NULL;
}

/* [(type, data)], whose bytes the list holds. */
static int chunks_read(PyObject *list, fby_fbl_chunk *chunks, uint32_t *count)
{
    Py_ssize_t length = PyList_Size(list);
    if (length > MOST_CHUNKS) {
        PyErr_Format(PyExc_ValueError, "%zd kinds of metadata; at most %d are expected", length, MOST_CHUNKS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        const char *type, *data;
        Py_ssize_t type_length, data_length;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "y#y#:encode", &type, &type_length, &data,
                              &data_length))
            return -1;
        if (type_length != sizeof chunks[i].type) {
            PyErr_SetString(PyExc_ValueError, "a type of metadata has four characters");
            return -1;
        }
        memcpy(chunks[i].type, type, sizeof chunks[i].type);
        chunks[i].data = data;
        chunks[i].length = (size_t)data_length;
    }
    *count = (uint32_t)length;
    return 0;
}

static PyObject *encode(PyObject *module, PyObject *arguments)
{
    (void)module;
    unsigned long long address;
    fby_fbl_image image = FBY_FBL_IMAGE_INIT;
    fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
    fby_fbl_chunk chunks[MOST_CHUNKS];
    PyObject *list;
    if (!PyArg_ParseTuple(arguments, "KIIIIIIO!:encode", &address, &image.width, &image.height,
                          &image.channels, &image.bits, &options.level, &options.threads, &PyList_Type,
                          &list) ||
        chunks_read(list, chunks, &options.chunks))
        return NULL;
    image.data = (const void *)(uintptr_t)address;
    options.chunk = chunks;

    fby_fbl_encoder *encoder = encoder_take();
    if (!encoder) return NULL;
    const void *bytes = NULL;
    size_t length = 0;
    fby_error error = FBY_ERROR_INIT;
    int reason;
    Py_BEGIN_ALLOW_THREADS reason = fby_fbl_encode(encoder, &image, &options, &bytes, &length, &error);
    Py_END_ALLOW_THREADS PyObject *result =
        reason ? fail(reason, &error) : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length);
    encoder_give(encoder);
    return result;
}

static PyObject *metadata_list(const fby_fbl_decoder *decoder)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list; i++) {
        fby_fbl_chunk chunk;
        fby_error error = FBY_ERROR_INIT;
        int reason = fby_fbl_metadata_at(decoder, i, &chunk, &error);
        if (!reason && !chunk.data) break;
        PyObject *pair = reason ? fail(reason, &error)
                                : Py_BuildValue("(y#y#)", chunk.type, (Py_ssize_t)sizeof chunk.type,
                                                (const char *)chunk.data, (Py_ssize_t)chunk.length);
        if (!pair || PyList_Append(list, pair)) Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *tile_list(const fby_fbl_decoder *decoder, const fby_fbl_info *info)
{
    uint32_t count = info->tiles_across * info->tiles_down;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < count; i++) {
        fby_fbl_tile tile = FBY_FBL_TILE_INIT;
        fby_error error = FBY_ERROR_INIT;
        int reason = fby_fbl_tile_read(decoder, i, &tile, &error);
        PyObject *mode = reason ? fail(reason, &error) : PyLong_FromUnsignedLong(tile.mode);
        if (!mode || PyList_Append(list, mode)) Py_CLEAR(list);
        Py_XDECREF(mode);
    }
    return list;
}

/* info(address, length, max_pixels) -> {…} */
static PyObject *info_of(PyObject *module, PyObject *arguments)
{
    (void)module;
    unsigned long long address, length, max_pixels;
    if (!PyArg_ParseTuple(arguments, "KKK:info", &address, &length, &max_pixels)) return NULL;
    fby_fbl_decoder *decoder = decoder_take();
    if (!decoder) return NULL;
    fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
    fby_fbl_info info = FBY_FBL_INFO_INIT;
    fby_error error = FBY_ERROR_INIT;
    options.max_pixels = max_pixels;
    int reason =
        fby_fbl_open(decoder, (const void *)(uintptr_t)address, (size_t)length, &options, &info, &error);
    PyObject *metadata = reason ? fail(reason, &error) : metadata_list(decoder);
    PyObject *tiles = metadata ? tile_list(decoder, &info) : NULL;
    PyObject *result = NULL;
    if (tiles) {
        result =
            Py_BuildValue("{s:I,s:I,s:I,s:I,s:(II),s:(II),s:K,s:O,s:O}", "width", info.width, "height",
                          info.height, "channels", info.channels, "bits", info.bits, "tile", info.tile_width,
                          info.tile_height, "tiles", info.tiles_across, info.tiles_down, "bytes",
                          (unsigned long long)info.file_bytes, "modes", tiles, "metadata", metadata);
    }
    Py_XDECREF(tiles);
    Py_XDECREF(metadata);
    decoder_give(decoder);
    return result;
}

/* decode(address, length, max_pixels, (x, y, w, h), to, row_stride, plane_stride, chw, threads) */
static PyObject *decode(PyObject *module, PyObject *arguments)
{
    (void)module;
    unsigned long long address, length, max_pixels, to, row_stride, plane_stride;
    fby_fbl_region region;
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    if (!PyArg_ParseTuple(arguments, "KKK(IIII)KKKII:decode", &address, &length, &max_pixels, &region.x,
                          &region.y, &region.width, &region.height, &to, &row_stride, &plane_stride,
                          &output.layout, &output.threads))
        return NULL;
    fby_fbl_decoder *decoder = decoder_take();
    if (!decoder) return NULL;
    fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
    fby_error error = FBY_ERROR_INIT;
    options.max_pixels = max_pixels;
    output.data = (void *)(uintptr_t)to;
    output.row_stride = (size_t)row_stride;
    output.plane_stride = (size_t)plane_stride;
    int reason;
    Py_BEGIN_ALLOW_THREADS reason =
        fby_fbl_open(decoder, (const void *)(uintptr_t)address, (size_t)length, &options, NULL, &error);
    if (!reason) reason = fby_fbl_decode(decoder, &region, &output, &error);
    Py_END_ALLOW_THREADS decoder_give(decoder);
    if (reason) return fail(reason, &error);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"encode", encode, METH_VARARGS,
     "encode(address, width, height, channels, bits, level, threads, [(type, data)]) -> bytes"},
    {"info", info_of, METH_VARARGS, "info(address, length, max_pixels) -> dict"},
    {"decode", decode, METH_VARARGS,
     "decode(address, length, max_pixels, (x, y, w, h), to, row_stride, plane_stride, layout, threads)"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "forebay._forebay_fbl", "FBL pictures.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__forebay_fbl(void);

PyMODINIT_FUNC PyInit__forebay_fbl(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    PyObject *class_attributes = Py_BuildValue("{s:s}", "reason", fby_fbl_reason_name(FBY_FBL_ARGUMENT));
    failure = !class_attributes
                  ? NULL
                  : PyErr_NewExceptionWithDoc("forebay.fbl.FblError",
                                              "Not an FBL picture, or a damaged one, or one that can't be "
                                              "made. `reason` is the reason's name.",
                                              PyExc_ValueError, class_attributes);
    Py_XDECREF(class_attributes);
    if (!failure) {
        Py_DECREF(module);
        return NULL;
    }
    Py_INCREF(failure);
    if (PyModule_AddObject(module, "FblError", failure)) {
        Py_DECREF(failure);
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
