from steersman.kube.api.types.apiextensions import *
from steersman.kube.api.types.apps import *
from steersman.kube.api.types.authorization import *
from steersman.kube.api.types.batch import *
from steersman.kube.api.types.coordination import *
from steersman.kube.api.types.core import *
from steersman.kube.api.types.discovery import *
from steersman.kube.api.types.events import *
from steersman.kube.api.types.meta import *
from steersman.kube.api.types.networking import *
from steersman.kube.api.types.pods import *
from steersman.kube.api.types.policy import *
from steersman.kube.api.types.rbac import *
from steersman.kube.api.types.volumes import *

__all__: list[str]
