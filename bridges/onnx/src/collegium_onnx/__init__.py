"""A student as an ONNX file."""

from collegium_onnx.export import export_onnx

__all__ = ["export_onnx"]
