#!/usr/bin/env bash
# Publish with curl: one event, a batch, and one as a publisher of its own. 201 means that the events are on disk.
set -euo pipefail

hub=$EVENTHUB_NAME
token=$(hubmere sas --connection-string "$EVENTHUB_TLS_CONNECTION_STRING" --hub "$hub")
post() { curl --fail --silent --show-error --cacert "$HUBMERE_CA_FILE" -H "Authorization: $token" "$@"; }

post -H "Temperature: 21.5" -d "http 0" "$HUBMERE_HTTPS/$hub/messages"

post -H "Content-Type: application/vnd.microsoft.servicebus.json" \
    -d '[{"Body": "http 1", "UserProperties": {"number": 1}}, {"Body": "http 2"}]' "$HUBMERE_HTTPS/$hub/messages"

# A device gets a token for its own path and can publish under its own name only.
scope=$(sed -E 's|.*Endpoint=(sb://[^;/]+).*|\1|' <<<"$EVENTHUB_TLS_CONNECTION_STRING")/$hub/publishers/device-7
token=$(hubmere sas --connection-string "$EVENTHUB_TLS_CONNECTION_STRING" --scope "$scope")
post -d "http 3" "$HUBMERE_HTTPS/$hub/publishers/device-7/messages"

echo "published 4 events"
