"""MSCCL's XML, and msccl-tools' JSON."""
