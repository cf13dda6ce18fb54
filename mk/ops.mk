# promtool and amtool come out of Debian's packages, unpacked and not installed:
# no daemon starts.
PROMTOOL := .tools/prometheus/usr/bin/promtool

$(PROMTOOL):
	mkdir -p .tools/prometheus
	cd .tools/prometheus && apt-get download prometheus prometheus-alertmanager && \
		for deb in *.deb; do dpkg -x "$$deb" . && rm "$$deb"; done

.PHONY: check-alerts
check-alerts: $(PROMTOOL) ## check the alert rules, their unit tests and the route with Prometheus's own tools
	cd deploy && ../$(PROMTOOL) check config --syntax-only prometheus.yml && ../$(PROMTOOL) check rules alerts.yml && \
		../$(PROMTOOL) test rules alerts_test.yml && ../$(dir $(PROMTOOL))amtool check-config alertmanager.yml

.PHONY: try-operations
try-operations: build ## do what docs/operations.md says without containers; on a machine that may be thrown away
	scripts/try-operations.sh
