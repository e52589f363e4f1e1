"""Refused tests of ONNX's own, by reason: of operators, and of whole models."""

VERSION = "1.23.0"

REFUSED = {
    "input: int2 tensors": """
        cast_INT2_to_FLOAT cast_INT2_to_FLOAT16 cast_INT2_to_INT8 castlike_FLOAT16_to_INT2
        castlike_FLOAT_to_INT2 castlike_INT2_to_FLOAT castlike_INT2_to_FLOAT16
        castlike_INT2_to_FLOAT16_expanded castlike_INT2_to_FLOAT_expanded
        castlike_INT2_to_INT8 castlike_INT2_to_INT8_expanded dequantizelinear_int2
        quantizelinear_int2
    """.split(),
    "input: int4 tensors": """
        cast_INT4_to_FLOAT cast_INT4_to_FLOAT16 cast_INT4_to_INT8 castlike_FLOAT16_to_INT4
        castlike_FLOAT_to_INT4 castlike_INT4_to_FLOAT castlike_INT4_to_FLOAT16
        castlike_INT4_to_FLOAT16_expanded castlike_INT4_to_FLOAT_expanded
        castlike_INT4_to_INT8 castlike_INT4_to_INT8_expanded dequantizelinear_int4
        quantizelinear_int4
    """.split(),
    "input: uint2 tensors": """
        cast_UINT2_to_FLOAT cast_UINT2_to_FLOAT16 cast_UINT2_to_UINT8
        castlike_FLOAT16_to_UINT2 castlike_FLOAT_to_UINT2 castlike_UINT2_to_FLOAT
        castlike_UINT2_to_FLOAT16 castlike_UINT2_to_FLOAT16_expanded
        castlike_UINT2_to_FLOAT_expanded castlike_UINT2_to_UINT8
        castlike_UINT2_to_UINT8_expanded dequantizelinear_uint2 quantizelinear_uint2
    """.split(),
    "input: uint4 tensors": """
        cast_UINT4_to_FLOAT cast_UINT4_to_FLOAT16 cast_UINT4_to_UINT8
        castlike_FLOAT16_to_UINT4 castlike_FLOAT_to_UINT4 castlike_UINT4_to_FLOAT
        castlike_UINT4_to_FLOAT16 castlike_UINT4_to_FLOAT16_expanded
        castlike_UINT4_to_FLOAT_expanded castlike_UINT4_to_UINT8
        castlike_UINT4_to_UINT8_expanded dequantizelinear_uint4 quantizelinear_uint4
    """.split(),
    "input: float4_e2m1 tensors": """
        cast_FLOAT4E2M1_to_FLOAT cast_FLOAT4E2M1_to_FLOAT16 castlike_FLOAT16_to_FLOAT4E2M1
        castlike_FLOAT4E2M1_to_FLOAT castlike_FLOAT4E2M1_to_FLOAT16
        castlike_FLOAT4E2M1_to_FLOAT16_expanded castlike_FLOAT4E2M1_to_FLOAT_expanded
        castlike_FLOAT_to_FLOAT4E2M1 dequantizelinear_float4e2m1 quantizelinear_float4e2m1
    """.split(),
    "input: float8_e4m3fnuz tensors": """
        cast_FLOAT8E4M3FNUZ_to_FLOAT cast_FLOAT8E4M3FNUZ_to_FLOAT16
        castlike_FLOAT16_to_FLOAT8E4M3FNUZ castlike_FLOAT8E4M3FNUZ_to_FLOAT
        castlike_FLOAT8E4M3FNUZ_to_FLOAT16 castlike_FLOAT8E4M3FNUZ_to_FLOAT16_expanded
        castlike_FLOAT8E4M3FNUZ_to_FLOAT_expanded castlike_FLOAT_to_FLOAT8E4M3FNUZ
        castlike_no_saturate_FLOAT16_to_FLOAT8E4M3FNUZ
        castlike_no_saturate_FLOAT_to_FLOAT8E4M3FNUZ
    """.split(),
    "input: float8_e5m2fnuz tensors": """
        cast_FLOAT8E5M2FNUZ_to_FLOAT cast_FLOAT8E5M2FNUZ_to_FLOAT16
        castlike_FLOAT16_to_FLOAT8E5M2FNUZ castlike_FLOAT8E5M2FNUZ_to_FLOAT
        castlike_FLOAT8E5M2FNUZ_to_FLOAT16 castlike_FLOAT8E5M2FNUZ_to_FLOAT16_expanded
        castlike_FLOAT8E5M2FNUZ_to_FLOAT_expanded castlike_FLOAT_to_FLOAT8E5M2FNUZ
        castlike_no_saturate_FLOAT16_to_FLOAT8E5M2FNUZ
        castlike_no_saturate_FLOAT_to_FLOAT8E5M2FNUZ
    """.split(),
    "ImageDecoder: the operator is not supported": """
        image_decoder_decode_bmp_rgb image_decoder_decode_jpeg2k_rgb
        image_decoder_decode_jpeg_bgr image_decoder_decode_jpeg_grayscale
        image_decoder_decode_jpeg_rgb image_decoder_decode_png_rgb
        image_decoder_decode_pnm_rgb image_decoder_decode_tiff_rgb
        image_decoder_decode_webp_rgb
    """.split(),
    "output: a sequence as an input or output, and shapes follow from the values of inputs": """
        if_opt loop13_seq loop16_seq_none sequence_insert_at_front
        sequence_map_add_1_sequence_1_tensor sequence_map_add_1_sequence_1_tensor_expanded
        split_to_sequence_1 split_to_sequence_2
    """.split(),
    "TfIdfVectorizer: the operator is not supported": """
        tfidfvectorizer_tf_batch_onlybigrams_skip0
        tfidfvectorizer_tf_batch_onlybigrams_skip5
        tfidfvectorizer_tf_batch_uniandbigrams_skip5 tfidfvectorizer_tf_only_bigrams_skip0
        tfidfvectorizer_tf_onlybigrams_levelempty tfidfvectorizer_tf_onlybigrams_skip5
        tfidfvectorizer_tf_uniandbigrams_skip5
    """.split(),
    "StringNormalizer: the operator is not supported; input: string tensors": """
        strnormalizer_export_monday_casesensintive_lower
        strnormalizer_export_monday_casesensintive_nochangecase
        strnormalizer_export_monday_casesensintive_upper
        strnormalizer_export_monday_empty_output
        strnormalizer_export_monday_insensintive_upper_twodim
        strnormalizer_nostopwords_nochangecase
    """.split(),
    "StringSplit: the operator is not supported; input: string tensors": """
        string_split_basic string_split_consecutive_delimiters
        string_split_empty_string_delimiter string_split_empty_tensor string_split_maxsplit
        string_split_no_delimiter
    """.split(),
    "StringConcat: the operator is not supported; input: string tensors": """
        string_concat string_concat_broadcasting string_concat_empty_string
        string_concat_utf8 string_concat_zero_dimensional
    """.split(),
    "Cast: float8_e4m3fnuz tensors": """
        cast_FLOAT16_to_FLOAT8E4M3FNUZ cast_FLOAT_to_FLOAT8E4M3FNUZ
        cast_no_saturate_FLOAT16_to_FLOAT8E4M3FNUZ cast_no_saturate_FLOAT_to_FLOAT8E4M3FNUZ
    """.split(),
    "Cast: float8_e4m3fnuz tensors; input: float8_e4m3fnuz tensors": """
        castlike_FLOAT16_to_FLOAT8E4M3FNUZ_expanded
        castlike_FLOAT_to_FLOAT8E4M3FNUZ_expanded
        castlike_no_saturate_FLOAT16_to_FLOAT8E4M3FNUZ_expanded
        castlike_no_saturate_FLOAT_to_FLOAT8E4M3FNUZ_expanded
    """.split(),
    "Cast: float8_e5m2fnuz tensors": """
        cast_FLOAT16_to_FLOAT8E5M2FNUZ cast_FLOAT_to_FLOAT8E5M2FNUZ
        cast_no_saturate_FLOAT16_to_FLOAT8E5M2FNUZ cast_no_saturate_FLOAT_to_FLOAT8E5M2FNUZ
    """.split(),
    "Cast: float8_e5m2fnuz tensors; input: float8_e5m2fnuz tensors": """
        castlike_FLOAT16_to_FLOAT8E5M2FNUZ_expanded
        castlike_FLOAT_to_FLOAT8E5M2FNUZ_expanded
        castlike_no_saturate_FLOAT16_to_FLOAT8E5M2FNUZ_expanded
        castlike_no_saturate_FLOAT_to_FLOAT8E5M2FNUZ_expanded
    """.split(),
    "Dropout: numbers of another library's generator for a seed": """
        training_dropout training_dropout_default training_dropout_default_mask
        training_dropout_mask
    """.split(),
    "RegexFullMatch: the operator is not supported; input: string tensors": """
        regex_full_match_basic regex_full_match_email_domain regex_full_match_empty
    """.split(),
    "Cast: float4_e2m1 tensors": """
        cast_FLOAT16_to_FLOAT4E2M1 cast_FLOAT_to_FLOAT4E2M1
    """.split(),
    "Cast: float4_e2m1 tensors; input: float4_e2m1 tensors": """
        castlike_FLOAT16_to_FLOAT4E2M1_expanded castlike_FLOAT_to_FLOAT4E2M1_expanded
    """.split(),
    "Cast: float8_e8m0 tensors": """
        cast_e8m0_FLOAT16_to_FLOAT8E8M0 cast_e8m0_FLOAT_to_FLOAT8E8M0
    """.split(),
    "Cast: int2 tensors": """
        cast_FLOAT16_to_INT2 cast_FLOAT_to_INT2
    """.split(),
    "Cast: int2 tensors; input: int2 tensors": """
        castlike_FLOAT16_to_INT2_expanded castlike_FLOAT_to_INT2_expanded
    """.split(),
    "Cast: int4 tensors": """
        cast_FLOAT16_to_INT4 cast_FLOAT_to_INT4
    """.split(),
    "Cast: int4 tensors; input: int4 tensors": """
        castlike_FLOAT16_to_INT4_expanded castlike_FLOAT_to_INT4_expanded
    """.split(),
    "Cast: uint2 tensors": """
        cast_FLOAT16_to_UINT2 cast_FLOAT_to_UINT2
    """.split(),
    "Cast: uint2 tensors; input: uint2 tensors": """
        castlike_FLOAT16_to_UINT2_expanded castlike_FLOAT_to_UINT2_expanded
    """.split(),
    "Cast: uint4 tensors": """
        cast_FLOAT16_to_UINT4 cast_FLOAT_to_UINT4
    """.split(),
    "Cast: uint4 tensors; input: uint4 tensors": """
        castlike_FLOAT16_to_UINT4_expanded castlike_FLOAT_to_UINT4_expanded
    """.split(),
    "TreeEnsemble: the operator is not supported": """
        ai_onnx_ml_tree_ensemble_set_membership ai_onnx_ml_tree_ensemble_single_tree
    """.split(),
    "input: float8_e8m0 tensors": """
        cast_e8m0_FLOAT8E8M0_to_FLOAT cast_e8m0_FLOAT8E8M0_to_FLOAT16
    """.split(),
    "input: string tensors": """
        ai_onnx_ml_label_encoder_string_int ai_onnx_ml_label_encoder_string_int_no_default
        ai_onnx_ml_label_encoder_tensor_mapping
        ai_onnx_ml_label_encoder_tensor_value_only_mapping equal_string
        equal_string_broadcast
    """.split(),
    "Bernoulli: a seed of another library's generator": ["bernoulli_seed"],
    "RandomUniformLike: a seed of another library's generator": ["bernoulli_seed_expanded"],
}

MODELS = {
    "StringNormalizer: the operator is not supported; input: string tensors": """
        strnorm_model_monday_casesensintive_lower
        strnorm_model_monday_casesensintive_nochangecase
        strnorm_model_monday_casesensintive_upper strnorm_model_monday_empty_output
        strnorm_model_monday_insensintive_upper_twodim
        strnorm_model_nostopwords_nochangecase
    """.split(),
    "Gradient: gradients within the model; take those of the imported graph with ef.grad": """
        gradient_of_add gradient_of_add_and_mul
    """.split(),
}
