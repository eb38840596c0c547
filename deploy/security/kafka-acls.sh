#!/bin/sh
# The rights of Dither's roles in Kafka: nothing else is needed. From `dither roles --kafka-acls`.
# BOOTSTRAP=broker:9093 ADMIN=admin.properties sh kafka-acls.sh
set -eu
acls() { kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config "$ADMIN" "$@"; }
acls --add --allow-principal User:dither-reporter --operation Write --topic dither.reports
acls --add --allow-principal User:dither-respondent --operation Write --topic dither.reports
acls --add --allow-principal User:dither-respondent --operation Read --topic dither.rounds
acls --add --allow-principal User:dither-respondent --operation Describe --group dither-rounds
acls --add --allow-principal User:dither-gateway --operation Write --topic dither.reports
acls --add --allow-principal User:dither-worker --operation Read --topic dither.reports
acls --add --allow-principal User:dither-worker --operation Read --group dither
acls --add --allow-principal User:dither-worker --operation Write --topic dither.deadletters
acls --add --allow-principal User:dither-reader --operation Describe --topic dither.reports
acls --add --allow-principal User:dither-publisher --operation Write --topic dither.estimates
acls --add --allow-principal User:dither-publisher --operation Read --topic dither.estimates
acls --add --allow-principal User:dither-publisher --operation Write --transactional-id dither.publisher.dither.reports
acls --add --allow-principal User:dither-publisher --operation Describe --group dither-publisher
acls --add --allow-principal User:dither-publisher --operation Write --topic dither.reports
acls --add --allow-principal User:dither-coordinator --operation Write --topic dither.rounds
acls --add --allow-principal User:dither-coordinator --operation Read --topic dither.rounds
acls --add --allow-principal User:dither-coordinator --operation Write --transactional-id dither.coordinator.dither.reports
acls --add --allow-principal User:dither-coordinator --operation Describe --group dither-coordinator
acls --add --allow-principal User:dither-coordinator --operation Describe --topic dither.reports
acls --add --allow-principal User:dither-verifier --operation Read --topic dither.reports
acls --add --allow-principal User:dither-verifier --operation Describe --group dither-verify- --resource-pattern-type prefixed
acls --add --allow-principal User:dither-operator --operation Create --topic dither.reports
acls --add --allow-principal User:dither-operator --operation Create --topic dither.deadletters
acls --add --allow-principal User:dither-operator --operation Create --topic dither.estimates
acls --add --allow-principal User:dither-operator --operation Create --topic dither.rounds
acls --add --allow-principal User:dither-recounter --operation Describe --topic dither.reports
