"""deploy/: what it names exists, and the tools of its trade have nothing to say against it.

promtool and helm are the machine's own, or are fetched by scripts/promtool and scripts/helm;
hadolint and systemd-analyze are run where they are installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from commitrelay.cli.app import every_command
from commitrelay.metrics import Histogram
from commitrelay.settings import DECLARATIONS
from commitrelay.telemetry import LaneMeter, Telemetry
from tests.conftest import give_up

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/commitrelay"
KUBERNETES = "1.30.0"
UNAVAILABLE = 69
"""What scripts/promtool and scripts/helm answer where they cannot be had."""


def tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def fetched(name: str) -> tuple[str, ...]:
    found = shutil.which(name)
    return (found,) if found else (sys.executable, str(ROOT / "scripts" / name))


def attempt(
    *command: str | Path, cwd: Path = ROOT, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd, input=given, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    if done.returncode == UNAVAILABLE:
        give_up(done.stderr.strip())
    return done


def run(*command: str | Path, cwd: Path = ROOT, given: str | None = None) -> str:
    done = attempt(*command, cwd=cwd, given=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def series() -> set[str]:
    """Every name that a scrape may show."""
    names = set()
    for metric in Telemetry().metrics:
        suffixes = ("_bucket", "_sum", "_count") if isinstance(metric, Histogram) else ("",)
        names |= {metric.name + suffix for suffix in suffixes}
    return names


def named_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w:])outbox_[a-z_]+(?![\w:])", text))


# --- Prometheus and Grafana --------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["grafana/dashboard.json", "prometheus/rules.yaml", "prometheus/rules_test.yaml",
     "helm/commitrelay/templates/scaledobject.yaml"],
)  # fmt: skip
def test_every_metric_that_is_named_exists(path: str) -> None:
    named = named_in((DEPLOY / path).read_text("utf-8"))
    assert named
    assert named <= series()


def test_the_dashboard_shows_every_metric() -> None:
    named = named_in((DEPLOY / "grafana/dashboard.json").read_text("utf-8"))
    shown = {metric.name for metric in Telemetry().metrics}
    assert {name for name in shown if not any(each.startswith(name) for each in named)} == set()


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads((DEPLOY / "grafana/dashboard.json").read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["title"] and panel["description"] and panel["targets"]
        assert all(
            target["expr"].count("(") == target["expr"].count(")") for target in panel["targets"]
        )
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & covered
        assert place["x"] + place["w"] <= 24
        covered |= cells


def test_every_expression_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    dashboard = json.loads((DEPLOY / "grafana/dashboard.json").read_text("utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = [
        {"record": f"x:{number}".replace(":", "_"), "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(expressions)
    ]
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "x", "rules": rules}]})
    )
    run(*fetched("promtool"), "check", "rules", tmp_path / "rules.yaml")


def test_every_rule_says_what_to_do() -> None:
    [group] = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text("utf-8"))["groups"]
    alerts = [rule for rule in group["rules"] if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) >= 7
    for rule in alerts:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    commands = {command.name for command in every_command()}
    text = (DEPLOY / "prometheus/rules.yaml").read_text("utf-8")
    assert set(re.findall(r"commitrelay ([a-z]+)", text)) <= commands


def test_promtool_accepts_rules_and_their_tests() -> None:
    promtool = fetched("promtool")
    run(*promtool, "check", "rules", "rules.yaml", cwd=DEPLOY / "prometheus")
    run(*promtool, "test", "rules", "rules_test.yaml", cwd=DEPLOY / "prometheus")


def test_promtool_refuses_a_rule_that_is_wrong(tmp_path: Path) -> None:
    rules = (DEPLOY / "prometheus/rules.yaml").read_text("utf-8")
    (tmp_path / "rules.yaml").write_text(rules.replace("expr: ", "expr: ((", 1))
    assert attempt(*fetched("promtool"), "check", "rules", tmp_path / "rules.yaml").returncode == 1


def test_promtool_accepts_the_exposition() -> None:
    telemetry = Telemetry()
    LaneMeter(telemetry, 'a "strange" lane')
    done = attempt(*fetched("promtool"), "check", "metrics", given=telemetry.text())
    assert (done.returncode, done.stderr) == (0, "")


# --- systemd -----------------------------------------------------------------------------------


def unit() -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd/commitrelay.service", "utf-8")
    return parser


def test_the_unit_names_what_exists() -> None:
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0
    assert int(service["TimeoutStopSec"]) > 30
    assert service["DynamicUser"] == "yes"
    assert_known(service["Environment"])
    assert " run --config " in service["ExecStart"]
    assert "://" not in service["ExecStart"]  # what is on a command line, everybody can read


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    text = (DEPLOY / "systemd/commitrelay.service").read_text("utf-8")
    program = text.replace("/opt/commitrelay/bin/commitrelay", "/bin/true")
    (tmp_path / "commitrelay.service").write_text(program)
    run(analyze, "verify", tmp_path / "commitrelay.service")


# --- Docker ------------------------------------------------------------------------------------


def test_the_image_runs_as_nobody_and_names_what_exists() -> None:
    text = (DEPLOY / "docker/Dockerfile").read_text("utf-8")
    [user] = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    assert int(user) > 0
    assert_known(text)
    [extras] = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    for name in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / part).exists() for part in name.split())
    for port in re.findall(r"9\d{3}", text):
        assert port == "9464"


def test_hadolint_accepts_the_dockerfile() -> None:
    assert run(tool("hadolint"), DEPLOY / "docker/Dockerfile") == ""


# --- Helm --------------------------------------------------------------------------------------


def test_templates_use_values_that_exist() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    for template in CHART.glob("templates/*"):
        for path in re.findall(r"\.Values\.([A-Za-z.]+)", template.read_text("utf-8")):
            found: Any = values
            for part in path.split("."):
                assert part in found, f"{template.name}: .Values.{path}"
                found = found[part]


def test_the_chart_names_what_exists() -> None:
    project = re.search(r'__version__ = "(.*)"', (ROOT / "src/commitrelay/__init__.py").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert project is not None
    assert chart["appVersion"] == project[1]
    for template in CHART.glob("templates/*"):
        assert_known(template.read_text("utf-8"))


def rendered(*more: str) -> dict[str, Any]:
    text = run(
        *fetched("helm"), "template", "shop", CHART, "--kube-version", KUBERNETES,
        *(word for setting in more for word in ("--set", setting)),
    )  # fmt: skip
    return {entry["kind"]: entry for entry in yaml.safe_load_all(text) if entry}


def test_helm_accepts_the_chart() -> None:
    run(*fetched("helm"), "lint", "--strict", CHART)
    found = rendered()
    assert set(found) == {"ConfigMap", "Deployment", "Job", "PodDisruptionBudget", "Service"}
    assert found["Job"]["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert set(rendered("migrate.enabled=false")) == set(found) - {"Job"}


@pytest.mark.parametrize("wrong", ["{{ .Values.nowhere.at.all }}", "{{ end }}", "a: [", "  b: 1"])
def test_helm_refuses_a_chart_that_is_wrong(tmp_path: Path, wrong: str) -> None:
    shutil.copytree(CHART, tmp_path / "commitrelay")
    (tmp_path / "commitrelay/templates/wrong.yaml").write_text(f"a: 1\n{wrong}\n")
    done = attempt(*fetched("helm"), "lint", "--strict", tmp_path / "commitrelay")
    assert done.returncode == 1
    assert "wrong.yaml" in done.stdout + done.stderr


def test_the_rendered_relays_are_probed_protected_and_scaled() -> None:
    found = rendered("keda.enabled=true", "metrics.serviceMonitor.enabled=true")
    deployment = found["Deployment"]["spec"]
    pod = deployment["template"]
    labels = pod["metadata"]["labels"]
    for kind in ("PodDisruptionBudget", "Deployment"):
        assert found[kind]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert found["Service"]["spec"]["selector"].items() <= labels.items()
    assert found["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= (
        found["Service"]["metadata"]["labels"].items()
    )
    assert "replicas" not in deployment  # KEDA decides
    name = found["Deployment"]["metadata"]["name"]
    assert found["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == name
    [relay] = pod["spec"]["containers"]
    assert relay["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "metrics"}
    assert relay["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert relay["securityContext"]["readOnlyRootFilesystem"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    mounts = {mount["mountPath"] for mount in relay["volumeMounts"]}
    for variable in relay["env"]:
        assert any(variable["value"].startswith(mount) for mount in mounts)
    assert not {"COMMITRELAY_DATABASE", "COMMITRELAY_PUBLISH"} & {
        variable["name"] for variable in relay["env"]
    }
    tomllib.loads(found["ConfigMap"]["data"]["commitrelay.toml"])


def assert_known(text: str) -> None:
    """Every variable in it is one of ours."""
    variables = {item.variable for item in DECLARATIONS}
    assert set(re.findall(r"COMMITRELAY_[A-Z_]+", text)) <= variables
