"""Where captured files are written: which destination of a hub matches which target of the settings."""

from pathlib import Path

import pytest

from hubmere.model.capture.targets import CapturePlace, CaptureTargets, is_path_inside, normalize_url
from hubmere.model.entity import CaptureDestination
from hubmere.model.errors import InvalidArgument

FOLDER = "file:///srv/events/capture/files"
BLOB = CapturePlace(url="az://account", options={"account_key": "a-secret"})
BUCKET = CapturePlace(url="s3://bucket/events", options={"secret_access_key": "another"})
RESOURCE_ID = "/subscriptions/0/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/{}"


def targets(*, has_account_folders: bool = False, **named: CapturePlace) -> CaptureTargets:
    folder = Path("/srv/events/capture/files")
    return CaptureTargets.in_folder(folder, named, has_account_folders=has_account_folders)


@pytest.mark.parametrize(
    ("account", "container", "url"),
    [
        ("", "", FOLDER),
        ("", "box", FOLDER + "/box"),
        ("account", "box", FOLDER + "/account/box"),
        (RESOURCE_ID.format("account"), "box", FOLDER + "/account/box"),
        (FOLDER + "/below", "", FOLDER + "/below"),
        (FOLDER + "/below", "box", FOLDER + "/below/box"),
    ],
)
def test_accounts_can_be_folders(account: str, container: str, url: str) -> None:
    """With the setting for it, files for an Azure account are in a folder of the same name."""
    place = targets(has_account_folders=True).place_of(CaptureDestination(storage_account=account, container=container))

    assert place == CapturePlace(url=url)


@pytest.mark.parametrize(
    ("account", "container", "place"),
    [
        ("Blob", "box", CapturePlace(url="az://account/box", options=BLOB.options)),
        (RESOURCE_ID.format("blob"), "box/orders", CapturePlace(url="az://account/box/orders", options=BLOB.options)),
        ("account", "box", CapturePlace(url="az://account/box", options=BLOB.options)),
        (RESOURCE_ID.format("ACCOUNT"), "box", CapturePlace(url="az://account/box", options=BLOB.options)),
        ("bucket", "", BUCKET),
        ("bucket", "bucket", BUCKET),
        ("s3://bucket/events/orders", "", CapturePlace(url="s3://bucket/events/orders", options=BUCKET.options)),
        ("", "", CapturePlace(url=FOLDER)),
    ],
)
def test_a_target_is_found_by_name_resource_id_or_url(account: str, container: str, place: CapturePlace) -> None:
    """The credential of the target comes from the settings only."""
    found = targets(blob=BLOB, bucket=BUCKET).place_of(CaptureDestination(storage_account=account, container=container))

    assert found == place
    assert "secret" not in repr(found)


def test_storage_account_that_is_no_target_is_refused_with_the_setting_that_allows_it() -> None:
    """Files for an account must not be written to a folder of the node unnoticed."""
    wish = CaptureDestination(storage_account=RESOURCE_ID.format("lake"), container="box")

    for known in (targets(), targets(bucket=BUCKET)):
        with pytest.raises(InvalidArgument) as refusal:
            known.place_of(wish)

        assert '[capture.targets.lake] with url = "az://lake"' in refusal.value.text()
        assert "capture_account_folders" in refusal.value.text()


@pytest.mark.parametrize(
    ("account", "url", "setting"),
    [
        ("lake", "az://account/captured", 'url = "az://account/other"'),
        ("account", "az://account/captured/events", 'url = "az://account/other"'),
        ("az://account/captured", "az://account/captured", 'url = "az://account/other"'),
        ("lake", "s3://captured/events", 'url = "s3://other"'),
    ],
)
def test_request_for_another_container_than_that_of_the_target_is_refused(account: str, url: str, setting: str) -> None:
    """The container must not become a folder inside the container of the target."""
    wish = CaptureDestination(storage_account=account, container="other")

    with pytest.raises(InvalidArgument) as refusal:
        targets(lake=CapturePlace(url=url)).place_of(wish)

    assert setting in refusal.value.text()


@pytest.mark.parametrize(
    ("container", "url"),
    [
        ("", "az://account/captured/events"),
        ("captured", "az://account/captured/events"),
        ("captured/orders", "az://account/captured/events/orders"),
        ("other", "az://account/other"),
    ],
)
def test_container_selects_between_targets_of_one_account(container: str, url: str) -> None:
    """Each container may have its own credential."""
    known = targets(one=CapturePlace(url="az://account/captured/events"), two=CapturePlace(url="az://account/other"))

    assert known.place_of(CaptureDestination(storage_account="account", container=container)).url == url


def test_target_called_default_is_used_for_hubs_that_name_none() -> None:
    """An operator can send all captures to a bucket without changing the hubs."""
    assert targets(default=BUCKET).place_of(CaptureDestination()) == BUCKET


def test_old_data_lake_properties_name_a_target() -> None:
    """ARM still has these properties for the destination EventHubArchive.AzureDataLake."""
    wish = CaptureDestination(
        name="EventHubArchive.AzureDataLake", data_lake_account="blob", data_lake_folder="/box/orders"
    )

    assert targets(blob=BLOB).place_of(wish).url == "az://account/box/orders"


@pytest.mark.parametrize(
    ("account", "container"),
    [
        ("unknown", "box"),
        ("blob", ""),
        ("blob", "../other"),
        ("blob", "box/%2e%2e/other"),
        ("file:///etc", ""),
        (FOLDER + "-of-others", ""),
        (FOLDER + "/../../keys", ""),
        (FOLDER + "/%2e%2e/keys", ""),
        ("s3://bucket/other", ""),
        ("az://stranger/box", ""),
        ("ftp://host/files", ""),
        ("https://user:word@host/files?sig=secret", ""),
    ],
)
def test_destination_that_the_settings_do_not_allow_is_refused(account: str, container: str) -> None:
    """A manager of a hub is not always the operator of the machine."""
    with pytest.raises(InvalidArgument) as refusal:
        targets(blob=BLOB, bucket=BUCKET).place_of(CaptureDestination(storage_account=account, container=container))

    assert "secret" not in refusal.value.text()
    assert "word" not in refusal.value.text()


def test_folder_of_an_account_cannot_be_outside_of_the_capture_folder() -> None:
    """The name of the account is used as the name of the folder."""
    with pytest.raises(InvalidArgument):
        targets(has_account_folders=True).place_of(CaptureDestination(storage_account=".."))


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("/srv/files/", "file:///srv/files"),
        ("file:///srv/files/", "file:///srv/files"),
        ("az://account", "az://account"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
    ],
)
def test_url_of_a_target_is_normalized(text: str, url: str) -> None:
    """Targets are compared by their text."""
    assert normalize_url(text) == url


@pytest.mark.parametrize(
    "text", ["", "files", "file:///", "az://", "s3:///x", "az://a/c?sig=1", "s3://k:s@bucket", "az://["]
)
def test_invalid_url_of_a_target_is_refused(text: str) -> None:
    """Credentials in a URL would end up in logs."""
    with pytest.raises(InvalidArgument):
        normalize_url(text)


@pytest.mark.parametrize(
    ("path", "is_inside"),
    [("a/b", True), ("", True), ("a..b", True), ("../a", False), ("a/./b", False), ("/a", False), ("a\\b", False)],
)
def test_joined_path_stays_below_its_base(path: str, is_inside: bool) -> None:
    """Name formats and containers are chosen by managers of hubs."""
    assert is_path_inside(path) is is_inside


def test_an_account_of_the_node_needs_no_target() -> None:
    """The node knows its own address and keys; only the container is the user's choice."""
    known = CaptureTargets.in_folder(Path("/srv"), own_accounts=["hubmerestorage"])

    for account in ("hubmerestorage", "HubmereStorage", RESOURCE_ID.format("hubmerestorage"), "az://hubmerestorage"):
        place = known.place_of(CaptureDestination(storage_account=account, container="captured/events"))

        assert place == CapturePlace(url="az://hubmerestorage/captured/events", is_own_storage=True)
        assert place.container == ("hubmerestorage", "captured")


def test_a_target_of_the_settings_goes_before_the_account_of_the_node() -> None:
    """Settings that name the account with an address and a key keep their meaning."""
    named = {"own": CapturePlace(url="az://hubmerestorage/captured", options={"account_key": "a-secret"})}
    known = CaptureTargets.in_folder(Path("/srv"), named, own_accounts=["hubmerestorage"])

    captured = known.place_of(CaptureDestination(storage_account="hubmerestorage", container="captured"))
    other = known.place_of(CaptureDestination(storage_account="hubmerestorage", container="other"))

    assert captured == named["own"]
    assert other.is_own_storage


@pytest.mark.parametrize("container", ["", "ab", "Captured", "two--hyphens", "x" * 64])
def test_a_container_that_the_node_cannot_create_is_refused(container: str) -> None:
    """The refusal comes when Capture is enabled, not when the job starts."""
    known = CaptureTargets.in_folder(Path("/srv"), own_accounts=["hubmerestorage"])

    with pytest.raises(InvalidArgument, match="container"):
        known.place_of(CaptureDestination(storage_account="hubmerestorage", container=container))
