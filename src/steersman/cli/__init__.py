"""The command line: `steersman COMMAND`, also as `kubectl steersman COMMAND`.

`entry` is where the program begins, `main` finds the command and turns errors into one line. Each command is a module
that is imported only when the command runs. One folder per group: `install/` prints manifests, `develop/` is for
authors, `demo/`, `migrate/`, and one folder per operator; `run`, `status` and `completion` stand alone. What commands
share: `output` (tables, JSON, YAML), `exit_codes`, `kube_options`, `config` (settings of `run`), `manifest_files`.
"""
