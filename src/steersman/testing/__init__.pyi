from steersman.testing.clock import FastClock as FastClock
from steersman.testing.clock import VirtualClock as VirtualClock
from steersman.testing.clock import settle as settle
from steersman.testing.controller_session import running as running
from steersman.testing.controller_session import running_least_privilege as running_least_privilege
from steersman.testing.controlplane.audit_log import AuditEntry as AuditEntry
from steersman.testing.controlplane.audit_log import AuditLog as AuditLog
from steersman.testing.controlplane.binaries import BinariesError as BinariesError
from steersman.testing.controlplane.launcher import (
    ALL_CONTROLLERS as ALL_CONTROLLERS,
)
from steersman.testing.controlplane.launcher import (
    LIFECYCLE_CONTROLLERS as LIFECYCLE_CONTROLLERS,
)
from steersman.testing.controlplane.launcher import (
    ControlPlane as ControlPlane,
)
from steersman.testing.controlplane.launcher import (
    ControlPlaneError as ControlPlaneError,
)
from steersman.testing.fault_proxy import FaultProxy as FaultProxy
from steersman.testing.programs import Program as Program
from steersman.testing.raw_api import ApiServer as ApiServer
from steersman.testing.raw_api import RawApi as RawApi
from steersman.testing.request_log import RequestLog as RequestLog
from steersman.testing.round_trips import assert_round_trips as assert_round_trips
from steersman.testing.round_trips import objects_of as objects_of
from steersman.testing.service_accounts import client_as as client_as
from steersman.testing.waiting import eventually as eventually
from steersman.testing.webhook_session import serving_webhooks as serving_webhooks

__all__: list[str]
