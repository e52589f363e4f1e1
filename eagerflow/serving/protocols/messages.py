"""The messages of the Open Inference Protocol over gRPC, described as data.

Source: the protocol's ``grpc_service.proto`` (package ``inference``): names and numbers of
fields. Protobuf makes classes of the description when a server with gRPC starts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from eagerflow import extras

__all__ = ["messages"]

PACKAGE = "inference"

# Fields in the order of their numbers: "type name"; * stands for repeated, % for a map from texts.
_TENSOR = "string name; string datatype; *int64 shape"
_MODEL = "string name; string version"
_NAMED = "string model_name; string model_version; string id; %InferParameter parameters"
_CHANGE = "string repository_name; string model_name; %ModelRepositoryParameter parameters"
FIELDS = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name; string version; *string extensions",
    "ModelMetadataRequest": _MODEL,
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "ModelMetadataResponse": "string name; *string versions; string platform; "
    "*ModelMetadataResponse.TensorMetadata inputs; *ModelMetadataResponse.TensorMetadata outputs",
    "InferParameter": "oneof parameter_choice: bool bool_param; int64 int64_param; "
    "string string_param; double double_param; uint64 uint64_param",
    "InferTensorContents": "*bool bool_contents; *int32 int_contents; *int64 int64_contents; "
    "*uint32 uint_contents; *uint64 uint64_contents; *float fp32_contents; "
    "*double fp64_contents; *bytes bytes_contents",
    "ModelInferRequest.InferInputTensor": f"{_TENSOR}; %InferParameter parameters; "
    "InferTensorContents contents",
    "ModelInferRequest.InferRequestedOutputTensor": "string name; %InferParameter parameters",
    "ModelInferRequest": f"{_NAMED}; *ModelInferRequest.InferInputTensor inputs; "
    "*ModelInferRequest.InferRequestedOutputTensor outputs; *bytes raw_input_contents",
    "ModelInferResponse.InferOutputTensor": f"{_TENSOR}; %InferParameter parameters; "
    "InferTensorContents contents",
    "ModelInferResponse": f"{_NAMED}; *ModelInferResponse.InferOutputTensor outputs; "
    "*bytes raw_output_contents",
    "ModelStreamInferResponse": "string error_message; ModelInferResponse infer_response",
    "ModelRepositoryParameter": "oneof parameter_choice: bool bool_param; int64 int64_param; "
    "string string_param; bytes bytes_param",
    "RepositoryIndexRequest": "string repository_name; bool ready",
    "RepositoryIndexResponse.ModelIndex": "string name; string version; string state; "
    "string reason",
    "RepositoryIndexResponse": "*RepositoryIndexResponse.ModelIndex models",
    "RepositoryModelLoadRequest": _CHANGE,
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": _CHANGE,
    "RepositoryModelUnloadResponse": "",
}


@cache
def messages() -> dict[str, Any]:
    r"""The class of each message by its name; MissingExtraError without protobuf.

    >>> from eagerflow.serving.protocols.messages import messages
    >>> messages()["ServerLiveResponse"](live=True).SerializeToString()
    b'\x08\x01'
    """
    feature = "gRPC in ef.serving"
    descriptors = extras.load("google.protobuf.descriptor_pb2", "serving", feature)
    pools = extras.load("google.protobuf.descriptor_pool", "serving", feature)
    factory = extras.load("google.protobuf.message_factory", "serving", feature)
    file = descriptors.FileDescriptorProto(
        name="eagerflow/open_inference.proto", package=PACKAGE, syntax="proto3"
    )
    described: dict[str, Any] = {}
    for name in sorted(FIELDS, key=lambda name: name.count(".")):
        outer, _, own = name.rpartition(".")
        rows = described[outer].nested_type if outer else file.message_type
        described[name] = rows.add(name=own or name)
        _describe(described[name], name, FIELDS[name])
    pool = pools.DescriptorPool()  # of our own: programs may have these messages already
    pool.Add(file)
    return {
        name: factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in FIELDS
    }


def _describe(message: Any, path: str, fields: str) -> None:
    """Add the fields of a message, numbered in order."""
    choice, _, rest = fields.rpartition(": ")
    if choice:
        message.oneof_decl.add(name=choice.removeprefix("oneof "))
    for number, field in enumerate(filter(None, rest.split("; ")), 1):
        kind, name = field.split()
        made = message.field.add(name=name, number=number)
        made.label = made.LABEL_REPEATED if kind[0] in "*%" else made.LABEL_OPTIONAL
        if choice:
            made.oneof_index = 0
        if kind[0] == "%":  # a map is a list of messages with a key and a value
            entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
            entry.options.map_entry = True
            key = entry.field.add(name="key", number=1, label=made.LABEL_OPTIONAL)
            key.type = key.TYPE_STRING
            _set_type(entry.field.add(name="value", number=2, label=made.LABEL_OPTIONAL), kind[1:])
            kind = f"{path}.{entry.name}"
        _set_type(made, kind.lstrip("*"))


def _set_type(field: Any, kind: str) -> None:
    if kind[0].isupper():
        field.type, field.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
