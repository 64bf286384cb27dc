"""Settings: where they come from, and what is said when one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitrelay.configuration import load
from commitrelay.errors import ConfigError
from commitrelay.kinds import Duration, Listing, duration
from commitrelay.settings import DECLARATIONS, Settings, attribute
from commitrelay.urls import redact, scrub


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "commitrelay.toml") -> str:
    Path(name).write_text(text, "utf-8")
    return name


class TestSources:
    def test_defaults_without_any_source(self) -> None:
        assert load({}, {}) == Settings()

    def test_a_flag_goes_before_a_variable_before_the_file_before_the_default(self) -> None:
        write('lease = "3s"\norder = "relaxed"\nwindow = 2\n')
        settings = load({"lease": "1s"}, {"COMMITRELAY_LEASE": "2s", "COMMITRELAY_ORDER": "strict"})
        assert (settings.lease, settings.order, settings.window) == (1.0, "strict", 2)
        assert settings.batch_size == 1000

    def test_every_setting_can_come_from_every_source(self) -> None:
        examples = {
            "NAME": "x", "MODULE": "x", "URL": "file:///x", "TEMPLATE": "t", "N": "7",
            "NUMBER": "0.5", "DURATION": "9s", "1s,5s,…": "1s", "NAME,…": "a,b", "FOLDER": "/x",
            "SIZE": "5MB", "FILE": "secret", "HOST:PORT": "[::1]:80", "COMMAND": "page me",
        }  # fmt: skip
        write("file:///x", "secret")
        for item in DECLARATIONS:
            options = getattr(item.kind, "options", None)
            text = options[-1] if options else examples[item.kind.metavar]
            wanted = item.kind.parse(text)
            assert getattr(load({item.name: text}, {}), attribute(item.name)) == wanted
            assert getattr(load({}, {item.variable: text}), attribute(item.name)) == wanted
            value = text if item.kind.metavar in ("N", "NUMBER") else f'"{text}"'
            write(f"{item.name} = {value}\n", "one.toml")
            assert getattr(load({"config": "one.toml"}, {}), attribute(item.name)) == wanted

    def test_database_url_serves_where_our_own_variable_is_absent_or_empty(self) -> None:
        both = {"DATABASE_URL": "sqlite:///a", "COMMITRELAY_DATABASE": "sqlite:///b"}
        assert load({}, both).database == "sqlite:///b"
        assert load({}, {**both, "COMMITRELAY_DATABASE": ""}).database == "sqlite:///a"

    def test_a_url_may_come_from_a_file_that_holds_a_secret(self) -> None:
        path = write("postgresql://u:p@h/d\n", "secret")
        elsewhere = {"DATABASE_URL": "sqlite:///a"}
        assert load({"database_file": path}, elsewhere).database == "postgresql://u:p@h/d"
        assert load({}, {"COMMITRELAY_PUBLISH_FILE": path}).publish == "postgresql://u:p@h/d"
        flags = {"database": "sqlite:///b", "database_file": path}
        assert load(flags, {}).database == "sqlite:///b"
        write("one\ntwo\n", "secret")
        for wrong, said in ((path, "must hold one line"), ("absent", "cannot be read")):
            with pytest.raises(ConfigError, match=said):
                load({"database_file": wrong}, {})

    def test_sizes_and_addresses(self) -> None:
        assert load({"alert_slot_lag": "1.5GB"}, {}).alert_slot_lag == 1_500_000_000
        assert load({"alert_table_size": "never"}, {}).alert_table_size is None
        assert load({"metrics_listen": "none"}, {}).metrics_listen is None
        assert load({"metrics_listen": "0.0.0.0:80"}, {}).metrics_listen == ("0.0.0.0", 80)
        for name, wrong in (("alert_slot_lag", "12"), ("metrics_listen", "80"),
                            ("metrics_listen", "x:99999"), ("alert_slot_lag", "-1GB")):  # fmt: skip
            with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} must be"):
                load({name: wrong}, {})

    def test_the_file_may_be_named_by_flag_or_variable(self) -> None:
        write("window = 3", "a.toml")
        write("window = 4", "b.toml")
        assert load({}, {"COMMITRELAY_CONFIG": "a.toml"}).window == 3
        assert load({"config": "b.toml"}, {"COMMITRELAY_CONFIG": "a.toml"}).window == 4

    def test_required_tells_all_three_ways(self) -> None:
        with pytest.raises(ConfigError, match=r"--publish.*COMMITRELAY_PUBLISH.*publish = "):
            load({}, {}).required("publish")


class TestFile:
    def test_broker_options_are_flat_text_whatever_toml_makes_of_their_dots(self) -> None:
        write(
            'publish = "kafka://h:1"\n[publisher]\na = 1\n'
            '[kafka]\nsasl.password = "x"\n"linger.ms" = 5\nenable.idempotence = true\n'
        )
        assert load({}, {}).publisher_options() == {
            "a": "1",
            "sasl.password": "x",
            "linger.ms": "5",
            "enable.idempotence": "true",
        }

    def test_options_of_another_scheme_are_left_out(self) -> None:
        write('publish = "file:///x"\n[kafka]\nacks = "all"\n')
        assert load({}, {}).publisher_options() == {}

    def test_an_encrypted_scheme_has_the_options_of_the_plain_one(self) -> None:
        write('publish = "rediss://host"\n[redis]\nstreams = 8\n')
        assert load({}, {}).publisher_options() == {"streams": "8"}

    def test_lanes_inherit_and_override(self) -> None:
        write(
            'database = "sqlite:///x"\npublish = "file:///a"\norder = "relaxed"\n'
            "[publisher]\nfsync = true\n"
            '[[lanes]]\nname = "default"\n'
            '[[lanes]]\nname = "audit"\npublish = "file:///b"\norder = "strict"\n'
            'aggregate_types = ["Order"]\nroutes = { Order = "audit" }\n'
            "publisher = { fsync = false }\n"
        )
        first, audit = load({}, {}).lanes()
        assert (first.name, first.settings.publish, first.settings.order) == (
            "default", "file:///a", "relaxed",
        )  # fmt: skip
        assert first.settings.publisher_options() == {"fsync": "true"}
        assert (audit.settings.publish, audit.settings.order) == ("file:///b", "strict")
        assert audit.aggregate_types == ("Order",)
        assert audit.event_types is None
        assert audit.settings.routes == {"Order": "audit"}
        assert audit.settings.publisher_options() == {"fsync": "false"}
        assert first.declared
        assert audit.declared

    def test_a_format_and_its_options_also_per_lane(self) -> None:
        write(
            'format = "cloudevents"\n'
            '[cloudevents]\nsource = "/shop"\n'
            '[debezium]\nroute.by.field = "type"\nroute.tombstone.on.empty.payload = false\n'
            '[[lanes]]\nname = "default"\n'
            '[[lanes]]\nname = "cdc"\nformat = "debezium"\n'
            "debezium = { route.tombstone.on.empty.payload = true }\n"
        )
        first, cdc = (lane.settings for lane in load({}, {}).lanes())
        assert (first.format, cdc.format) == ("cloudevents", "debezium")
        assert first.options["cloudevents"] == {"source": "/shop"}
        assert cdc.options["debezium"] == {
            "route.by.field": "type",
            "route.tombstone.on.empty.payload": "true",
        }
        assert first.options["debezium"]["route.tombstone.on.empty.payload"] == "false"

    def test_some_lanes_of_the_file_can_be_chosen(self) -> None:
        write('[[lanes]]\nname = "a"\n[[lanes]]\nname = "b"\n')
        assert [lane.name for lane in load({"lane": "b"}, {}).lanes()] == ["b"]
        with pytest.raises(ConfigError, match=r"lane 'c' is not among .* a, b"):
            load({"lane": "c"}, {}).lanes()

    def test_without_lanes_in_the_file_a_lane_is_not_declared(self) -> None:
        assert [(lane.name, lane.declared) for lane in load({}, {}).lanes()] == [("default", False)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("databse = 'x'", "commitrelay.toml: unknown key 'databse' (did you mean database?)"),
            ("[kafak]\na = 1", "commitrelay.toml: unknown table [kafak] (did you mean kafka?)"),
            ("lease = 30", "commitrelay.toml: lease has no unit: write 30s"),
            ("lease = true", "commitrelay.toml: lease must be a duration"),
            ("window = 'x'", "commitrelay.toml: window must be a whole number, not 'x'"),
            ("window = 0", "commitrelay.toml: window must be between 1 and 1000, not 0"),
            ("order = 'strit'", "(did you mean strict?)"),
            ("database = ''", "commitrelay.toml: database is empty"),
            ("database = 1", "commitrelay.toml: database must be a string, not 1"),
            ("routes = 'x'", "commitrelay.toml: [routes] must be a table"),
            ("[routes]\nOrder = 1", "commitrelay.toml: [routes] Order must be a topic"),
            ("[kafka]\na = [1]", "commitrelay.toml: [kafka] a must be a string"),
            ("[lanes]\nname = 'a'", "commitrelay.toml: lanes must be written as [[lanes]]"),
            ("[[lanes]]\norder = 'strict'", "commitrelay.toml: [[lanes]] number 1 has no name"),
            ("[[lanes]]\nname = 'a'\ntopik = 'x'", "[[lanes]] a: unknown key 'topik'"),
            ("[[lanes]]\nname='a'\n[[lanes]]\nname='a'", "two [[lanes]] have the name 'a'"),
            ("= x", "commitrelay.toml is not valid TOML"),
        ],
    )
    def test_what_is_wrong_is_one_line_that_names_file_and_key(
        self, text: str, message: str
    ) -> None:
        write(text)
        with pytest.raises(ConfigError) as caught:
            load({}, {})
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
            load({"config": "none.toml"}, {})
        with pytest.raises(ConfigError, match="cannot be read"):
            load({"config": str(tmp_path)}, {})
        Path("binary.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match="not UTF-8"):
            load({"config": "binary.toml"}, {})

    def test_wrong_flags_and_variables_are_named_as_well(self) -> None:
        with pytest.raises(ConfigError, match=r"^--lease must be a duration"):
            load({"lease": "soon"}, {})
        with pytest.raises(ConfigError, match=r"^COMMITRELAY_LEASE must be a duration"):
            load({}, {"COMMITRELAY_LEASE": "soon"})


class TestKinds:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("500ms", 0.5), ("30s", 30), ("5m", 300), ("12h", 43200), ("7d", 604800), ("1.5 s", 1.5)],
    )
    def test_durations(self, text: str, seconds: float) -> None:
        assert Duration().parse(text) == seconds
        assert Duration().parse(duration(seconds)) == seconds

    def test_never_only_where_it_makes_sense(self) -> None:
        assert Duration(never=True).parse("never") is None
        with pytest.raises(ValueError, match="must be a duration"):
            Duration().parse("never")

    def test_lists_as_text_and_as_toml(self) -> None:
        delays = Listing(Duration())
        assert delays.parse("1s, 5s") == delays.parse(["1s", "5s"]) == (1.0, 5.0)
        assert delays.show((1.0, 120.0)) == "1s,2m"


class TestRedaction:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://user:canary@host/db",
            "postgresql://user:can@ary@host/db",
            "postgresql://user:can/ary@host/db?sslmode=require",
            "postgresql://user:can?ary@host/db",
            "postgresql://user:can#ary@host/db",
            "postgresql://host/db?user=u&password=canary",
            "postgresql://host/db?sslpassword=canary&x=1",
            "kafka://a:9092,b:9092/?sasl.password=canary&sasl.username=u",
            "kafka://u:canary@a:9092,b:9092",
            "kafka://h:1?ssl.key.password=canary",
            "postgresql://user:can'ary@host/db",
            "postgresql://user:canary",
            "kafka://h:1?sasl.oauthbearer.client.secret=canary",
        ],
    )
    def test_no_password_is_shown(self, url: str) -> None:
        for shown in (redact(url), scrub(f"cannot connect to {url}: no route")):
            assert "canary" not in shown
            assert "ary@" not in shown
            assert "***" in shown

    @pytest.mark.parametrize(
        "url",
        [
            "sqlite:////var/lib/shop.db",
            "postgresql://user@host:5432/db?sslmode=require",
            "kafka://a:9092,b:9092/?client.id=a",
            "file:///var/topics",
            "stdout:",
            "postgresql://[::1]:5432/db",
        ],
    )
    def test_what_is_no_password_is_shown(self, url: str) -> None:
        assert redact(url) == url
        for text in (f"no answer from {url}: refused", f"({url}), '{url}'; {url}."):
            assert scrub(text) == text

    def test_key_value_pairs_in_the_errors_of_drivers(self) -> None:
        text = scrub("host=db password=canary dbname=x; sasl.password = 'can ary', y=1")
        assert "can" not in text
        assert "host=db" in text
        assert "y=1" in text
