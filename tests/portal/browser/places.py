"""The pages and dialogs of the portal, for tests that visit all of them."""

from portal.browser.captured import FILE

# Path below the namespace, and the heading of the page.
PAGES = (
    ("", "Overview"),
    ("/hub?hub=orders", "orders"),
    ("/explorer?hub=orders", "Explorer"),
    ("/groups", "Consumer groups"),
    ("/group?protocol=AMQP&hub=orders&group=$Default", "$Default"),
    ("/processors", "Event processors"),
    ("/scale", "Scale"),
    ("/capture", "Capture"),
    ("/captured?hub=archived", "Captured files"),
    ("/access", "Access"),
    ("/roles", "Role assignments"),
    ("/network", "Network"),
    ("/recovery", "Recovery"),
    ("/links", "Links"),
    ("/audit", "Audit"),
)
# A page, and the button on it that opens a dialog.
DIALOGS = (
    ("", "Overview", "New event hub"),
    ("/hub?hub=orders", "orders", "New consumer group"),
    ("/hub?hub=orders", "orders", "Delete event hub"),
    ("/explorer?hub=orders", "Explorer", "Send event"),
    ("/explorer?hub=orders", "Explorer", "Open 0/0"),
    ("/capture", "Capture", "Edit orders"),
    (f"/captured?hub=archived&file={FILE}", "Captured files", "Open 0/0"),
    ("/access", "Access", "New rule"),
    ("/roles", "Role assignments", "Assign role"),
    ("/network", "Network", "New application group"),
    ("/recovery", "Recovery", "New alias"),
    ("/recovery", "Recovery", "New namespace"),
)
