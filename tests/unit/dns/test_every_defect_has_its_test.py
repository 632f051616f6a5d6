"""The defects of the original (B1 to B32) and of its sidecar (S1 to S7), the traps of name servers (T1 to T17), and the
tests that show ours right.

A number whose test does not exist fails here. What is not shown is said in `MISSING`, in words, and nowhere else.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PURE = "tests/unit/dns/test_defects_of_the_original.py"
SERVERS = "tests/contract/dns/test_defects_on_servers.py"
ZONES = "tests/contract/dns/test_zones_served.py"
RECORDS = "tests/contract/dns/test_records_served.py"
MADE = "tests/contract/dns/test_made_servers.py"
SIGNED = "tests/contract/dns/test_signing_served.py"
SIGNED_PODS = "tests/e2e/dns/pods/test_signing_pods.py"
LEFT = "tests/contract/dns/test_left_behind.py"
COMPILER = "tests/unit/dns/test_zone_compiler.py"
TEXT = "tests/unit/dns/test_zone_text.py"
DRIVER = "tests/unit/dns/test_bindcar_driver.py"
SIDECAR = "tests/contract/dns/test_sidecar.py"
ANSWERS = f"{SIDECAR}::test_every_request_has_the_answer_that_callers_of_the_original_expect_or_a_better_one"

# Tests whose names have no number in them, because they say more than that.
ELSEWHERE = {
    "B1": [f"{ZONES}::test_a_quiet_operator_writes_nothing_to_the_api_and_nothing_to_servers"],
    "B3": [f"{ZONES}::test_changes_of_the_start_of_authority_name_servers_and_transfer_lists_reach_running_servers"],
    "B5": [f"{COMPILER}::test_an_rrset_is_the_union_of_what_resources_contribute"],
    "B6": [f"{ZONES}::test_primaries_agree_on_every_serial_secondaries_follow_and_a_lost_disk_never_shows"],
    "B7": [f"{COMPILER}::test_the_zone_s_ttl_holds_for_records_without_one_and_an_hour_without_either"],
    "B10": [
        f"{MADE}::test_what_cannot_be_right_together_is_refused_with_the_name_of_the_field",
        f"{SIGNED}::test_b10_named_signs_with_made_keys_as_they_are_and_writes_none",
        f"{SIGNED_PODS}::test_b10_the_keys_of_a_zone_outlive_every_pod_and_disk_and_its_ds_record_stays",
        f"{SIGNED_PODS}::test_b10_given_keys_are_used_and_without_keys_a_zone_is_not_signed_and_says_so",
        f"{SIGNED_PODS}::test_b10_keys_of_the_disk_live_as_long_as_it_does_and_a_volume_of_their_own_longer",
    ],
    "B11": [f"{ZONES}::test_primaries_agree_on_every_serial_secondaries_follow_and_a_lost_disk_never_shows"],
    "B13": [f"{RECORDS}::test_records_of_all_kinds_are_added_changed_renamed_relabelled_and_deleted"],
    "B14": [
        f"{ZONES}::test_an_instance_that_is_no_longer_selected_stops_serving_and_a_younger_namesake_takes_over",
        f"{LEFT}::test_b14_a_server_that_was_away_when_it_was_deselected_loses_the_zone_when_it_is_back",
    ],
    "B20": [f"{MADE}::test_a_cluster_becomes_instances_and_they_become_what_pods_need_and_then_nothing_is_written"],
    "B23": ["tests/unit/runtime/test_conditions.py::test_the_transition_time_moves_with_the_status_and_only_with_it"],
    "B25": [
        "tests/unit/cache/test_cache_reflector.py::test_an_unreachable_server_is_asked_less_and_less_often",
        "tests/unit/runtime/test_manager.py::test_with_a_limit_a_source_that_does_not_sync_ends_the_process_by_name",
    ],
    "B26": ["tests/unit/runtime/test_health.py::test_a_failed_check_is_named_with_its_reason_and_can_be_left_out"],
    "B31": [f"{DRIVER}::test_b31_nobody_deletes_what_is_not_there_and_a_500_about_it_is_no_reason_to_wait"],
    # The sidecar: POST writes over a live zone; list and get see primaries only; PATCH takes no ports and primaries;
    # DELETE of a missing zone is 500; it is always ready; it throttles the operator; secondaries have no file.
    "S1": [f"{SIDECAR}::test_a_live_zone_is_never_written_over_and_a_failed_one_leaves_nothing"],
    "S2": [ANSWERS, f"{SIDECAR}::test_zones_that_others_added_are_listed_where_named_keeps_statistics"],
    "S3": [ANSWERS, f"{SIDECAR}::test_a_secondary_has_a_file_and_follows_primaries_that_are_changed_under_it"],
    "S4": [ANSWERS],
    "S5": [f"{SIDECAR}::test_readiness_is_that_of_named_and_a_named_that_is_away_is_said_to_be"],
    "S6": [f"{SIDECAR}::test_floods_large_bodies_and_other_media_are_refused_before_they_cost_anything"],
    "S7": [f"{SIDECAR}::test_a_secondary_has_a_file_and_follows_primaries_that_are_changed_under_it"],
    "T3": [f"{COMPILER}::test_of_a_cname_and_other_data_the_older_stays_and_only_the_other_is_held_back"],
    "T5": [f"{COMPILER}::test_different_ttls_give_the_lowest_and_those_who_asked_for_another_are_told"],
    "T9": [f"{TEXT}::test_two_zones_never_share_a_file"],
}
# What ours does not do: parts of a number, and why.
MISSING = {
    "B10": "keys of a Secret are not replaced, and keys that named replaces are not copied into one",
    "B24": "of several rndcSecretRefs only the first has an effect",
}
NUMBERS = [f"{letter}{number}" for letter, last in (("B", 32), ("T", 17), ("S", 7)) for number in range(1, last + 1)]


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        row.name
        for row in tree.body
        if isinstance(row, (ast.FunctionDef, ast.AsyncFunctionDef)) and row.name.startswith("test_")
    )


def numbered(number: str) -> list[str]:
    """Tests that have the number in their name."""
    return [
        f"{path}::{name}" for path in (PURE, SERVERS) for name in names_in(path) if number.lower() in name.split("_")
    ]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_test_shows_ours_right(number):
    assert numbered(number) or ELSEWHERE.get(number)


def test_every_test_that_is_named_exists():
    named = [row for rows in ELSEWHERE.values() for row in rows]
    assert not [row for row in named if row.partition("::")[2] not in names_in(row.partition("::")[0])]
    assert {*ELSEWHERE, *MISSING} <= set(NUMBERS)
