"""How a client finds its cluster and proves who it is: kubeconfig, credentials, plugins, proxies."""
