# Sourced by `% setup: . $HELPERS/new_environment.sh` where a page installs distrun, with `% setup: deactivate` after
# that: an empty Python environment. `./scripts/wheel` gives a wheel of the installed distrun, and pip fetches nothing.
mkdir -p scripts
for folder in ${PATH//:/ }; do
  if "$folder/python" -c 'import importlib.metadata as m; m.distribution("distrun")' 2>/dev/null; then break; fi
done
printf '#!/bin/sh\nexec "%s/python" "%s/wheel_of_installed.py" dist\n' "$folder" "$HELPERS" >scripts/wheel
chmod +x scripts/wheel
python -m venv .new
. .new/bin/activate
export PIP_NO_INDEX=1 PIP_NO_DEPS=1 PIP_FIND_LINKS="$PWD/dist" PIP_DISABLE_PIP_VERSION_CHECK=1
