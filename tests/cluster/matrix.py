"""The failure matrix: each fault, and the tests that show what a cluster does.

Rows F1 to F24 are those of the design. A row without a test says why it has none.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault. Tests are names of files in this folder, with the test; `open_reason` says what is not shown."""

    fault: str
    tests: tuple[str, ...] = ()
    open_reason: str = ""


_ON_KAFKA = "test_on_kafka.py::test_"
_BAD_DAYS = "test_bad_days.py::test_"
_FAULTS = "test_faults.py::test_"
_RANDOM = "test_random_faults.py::test_"

ROWS: dict[str, Row] = {
    "F1": Row(
        fault="a gateway is killed",
        tests=(
            f"{_ON_KAFKA}killed_broker_and_killed_gateway_lose_nothing",
            f"{_FAULTS}a_killed_gateway_is_replaced",
            f"{_RANDOM}random_faults_lose_and_duplicate_nothing",
        ),
    ),
    "F2": Row(
        fault="a gateway is stopped in order",
        tests=(f"{_FAULTS}gateways_that_are_stopped_in_order_and_started_again_lose_nothing",),
    ),
    "F3": Row(
        fault="a gateway is frozen",
        tests=(
            f"{_ON_KAFKA}gateway_that_was_frozen_delivers_nothing_to_its_displaced_reader",
            f"{_FAULTS}a_place_is_not_granted_while_its_frozen_owner_may_deliver",
        ),
    ),
    "F4": Row(
        fault="a broker is killed",
        tests=(
            f"{_ON_KAFKA}killed_broker_and_killed_gateway_lose_nothing",
            f"{_RANDOM}random_faults_lose_and_duplicate_nothing",
        ),
    ),
    "F5": Row(fault="the controller is killed", tests=(f"{_FAULTS}a_killed_controller_delays_new_hubs_only",)),
    "F6": Row(
        fault="two of three brokers are killed",
        tests=(
            f"{_BAD_DAYS}too_few_brokers_in_sync_refuse_publications_and_serve_reads",
            f"{_FAULTS}two_dead_brokers_refuse_publications_until_one_is_back",
        ),
    ),
    "F7": Row(fault="a leader is frozen", tests=(f"{_FAULTS}a_frozen_leader_is_replaced",)),
    "F8": Row(
        fault="a gateway is cut off from all brokers",
        tests=(f"{_BAD_DAYS}gateway_that_loses_its_cluster_stops_and_reports_it",),
    ),
    "F9": Row(
        fault="a gateway is cut off from one broker",
        tests=("test_appends.py::test_frozen_leader_is_given_up_while_publications_arrive",),
        open_reason="shown by a frozen broker, which no gateway reaches; not by a cut of one connection",
    ),
    "F10": Row(
        fault="a leader is cut off from its followers",
        tests=(f"{_FAULTS}a_leader_without_its_followers_acknowledges_nothing",),
        open_reason="its followers are frozen instead; no cut with a gateway on each side",
    ),
    "F11": Row(
        fault="the leader of the control log is frozen",
        tests=(f"{_FAULTS}management_waits_while_the_leader_of_the_control_log_is_frozen",),
    ),
    "F12": Row(
        fault="a consumer moves to a gateway that is behind",
        tests=(
            f"{_ON_KAFKA}consumer_that_moves_to_another_gateway_is_not_reset",
            f"{_FAULTS}a_consumer_is_not_reset_by_a_gateway_that_is_behind",
        ),
    ),
    "F13": Row(
        fault="owners with rising epochs on several gateways",
        tests=(
            f"{_ON_KAFKA}increasing_epochs_on_different_gateways_displace_each_other",
            f"{_RANDOM}readers_that_displace_each_other_never_overlap",
            "test_places_simulation.py::test_two_gateways_never_deliver_to_one_exclusive_reader",
        ),
    ),
    "F14": Row(
        fault="two managers change the same hubs",
        tests=(
            "test_cluster_catalog.py::test_two_gateways_that_create_the_same_hub_create_one",
            "test_cluster_catalog.py::test_update_based_on_an_old_row_is_a_conflict",
        ),
    ),
    "F15": Row(fault="a snapshot is half written", tests=("test_snapshots.py::test_incomplete_snapshot_is_ignored",)),
    "F16": Row(
        fault="a rolling upgrade of gateways",
        tests=(
            f"{_FAULTS}gateways_that_are_stopped_in_order_and_started_again_lose_nothing",
            "test_control_state.py::test_newer_release_may_add_fields_to_an_entry",
        ),
        open_reason="there is one release; both processes are of it",
    ),
    "F17": Row(
        fault="a rolling upgrade of Kafka",
        tests=(f"{_FAULTS}brokers_that_are_restarted_one_by_one_lose_nothing",),
        open_reason="the brokers are restarted with the same release",
    ),
    "F18": Row(
        fault="the disk of a broker is full",
        open_reason="a broker ends itself when its only log folder fails: then it is F4 and F6",
    ),
    "F19": Row(
        fault="clocks differ",
        tests=(
            "test_places_simulation.py::test_two_gateways_never_deliver_to_one_exclusive_reader",
            "test_control_state.py::test_silent_gateway_is_declared_dead_by_the_heartbeats_of_another",
        ),
    ),
    "F20": Row(
        fault="a topic is deleted or replaced by hand",
        tests=(f"{_BAD_DAYS}hub_whose_topic_was_deleted_by_hand_is_damaged",),
    ),
    "F21": Row(
        fault="wrong secret, prefix or credentials",
        tests=(
            f"{_BAD_DAYS}another_secret_for_a_prefix_in_use_is_refused",
            "test_start_refusals.py::test_wrong_credentials_end_the_start",
        ),
    ),
    "F22": Row(fault="a database fails", open_reason="there is none"),
    "F23": Row(
        fault="Capture under F1 and F4",
        tests=("test_capture_on_kafka.py::test_captured_files_are_exact_when_the_gateway_that_runs_the_job_is_killed",),
        open_reason="a gateway is killed, and no broker",
    ),
    "F24": Row(
        fault="Spark under F1 and F4",
        tests=("../pipeline/test_on_gateways.py::test_copy_is_exact_when_a_gateway_is_killed",),
    ),
}
