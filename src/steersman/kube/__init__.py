"""The wire: the Kubernetes API as values and as a client. Knows no policy.

    client/      Client: verbs, lists and watches, discovery, subresources; `codec` turns bytes into typed objects
       │
    transport/   one server over HTTP: TLS, retries, streams of lines, one KubeError for everything that goes wrong
       │
    config/      where the server is and who we are there: kubeconfig, tokens, plugins, OIDC, proxies
       │
    api/         pure data: kinds, objects, selectors, quantities, patches, errors; the built-in kinds in `types/`

Each layer uses only those below it. This package is the public surface; names are loaded on first use, so that
importing pure data does not load the client.
"""

from steersman.lazy_imports import attach

__getattr__, __dir__ = attach(__name__, __file__)
