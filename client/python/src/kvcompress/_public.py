# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The public names of the package, which `kvcompress` imports from here on their first use.

The one list of them: for programs, type checkers and the documentation.
"""

from kvcompress._arrays import Array as Array
from kvcompress._arrays import load_arrays as load_arrays
from kvcompress._client import Client as Client
from kvcompress._files import load_file as load_file
from kvcompress._files import save_file as save_file
from kvcompress._info import CodecInfo as CodecInfo
from kvcompress._info import CodecParameter as CodecParameter
from kvcompress._info import ProfileInfo as ProfileInfo
from kvcompress._info import SelfTestReport as SelfTestReport
from kvcompress._info import SelfTestResult as SelfTestResult
from kvcompress._info import ServerInfo as ServerInfo
from kvcompress._info import ServerLimits as ServerLimits
from kvcompress._reports import CompressionReport as CompressionReport
from kvcompress._reports import CompressionResult as CompressionResult
from kvcompress._reports import DecompressionReport as DecompressionReport
from kvcompress._reports import DecompressionResult as DecompressionResult
from kvcompress._reports import InMemoryCompressionResult as InMemoryCompressionResult
from kvcompress._reports import InMemoryDecompressionResult as InMemoryDecompressionResult
from kvcompress._reports import PresetExpectation as PresetExpectation
from kvcompress._reports import ProfileUse as ProfileUse
from kvcompress._reports import ReportWarning as ReportWarning
from kvcompress._reports import RoleCounts as RoleCounts
from kvcompress._tensor_report import MissedBound as MissedBound
from kvcompress._tensor_report import QualityLevel as QualityLevel
from kvcompress._tensor_report import Rope as Rope
from kvcompress._tensor_report import TensorReport as TensorReport
from kvcompress._tensor_report import Verdict as Verdict
from kvcompress._torch_tensors import load_torch as load_torch
from kvcompress._warnings import CompressionWarning as CompressionWarning
from kvcompress.errors import AbortedError as AbortedError
from kvcompress.errors import AlreadyExistsError as AlreadyExistsError
from kvcompress.errors import CallCancelledError as CallCancelledError
from kvcompress.errors import DataLossError as DataLossError
from kvcompress.errors import DeadlineExceededError as DeadlineExceededError
from kvcompress.errors import FailedPreconditionError as FailedPreconditionError
from kvcompress.errors import InternalError as InternalError
from kvcompress.errors import InvalidArgumentError as InvalidArgumentError
from kvcompress.errors import KVCompressError as KVCompressError
from kvcompress.errors import NotFoundError as NotFoundError
from kvcompress.errors import OutOfRangeError as OutOfRangeError
from kvcompress.errors import PermissionDeniedError as PermissionDeniedError
from kvcompress.errors import QualityError as QualityError
from kvcompress.errors import ResourceExhaustedError as ResourceExhaustedError
from kvcompress.errors import UnauthenticatedError as UnauthenticatedError
from kvcompress.errors import UnavailableError as UnavailableError
from kvcompress.errors import UnimplementedError as UnimplementedError
from kvcompress.errors import UnknownError as UnknownError
from kvcompress.v1.quality_types import Metrics as Metrics
from kvcompress.v1.quality_types import Thresholds as Thresholds
