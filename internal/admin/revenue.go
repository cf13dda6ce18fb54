package admin

import (
	"context"
	"fmt"
)

// counted is the condition for purchases that count: the store has not refunded them, and support
// did not grant them by hand.
const counted = `reversed_at IS NULL AND by_support = 0`

// Revenue sums up all purchases that their store has not refunded, including those of deleted accounts.
type Revenue struct {
	// PayingUsers counts buyers who still have an account: deleting an account removes its id from its
	// purchases.
	PayingUsers   int64 `json:"payingUsers"`
	PurchaseCount int64 `json:"purchaseCount"`
	CreditsSold   int64 `json:"creditsSold"`
	// The same for the last 30 times 24 hours.
	PurchaseCount30d       int64 `json:"purchaseCount30d"`
	CreditsSold30d         int64 `json:"creditsSold30d"`
	PlatformAPurchaseCount int64 `json:"platformAPurchaseCount"`
	PlatformBPurchaseCount int64 `json:"platformBPurchaseCount"`
	PlatformACredits       int64 `json:"platformACredits"`
	PlatformBCredits       int64 `json:"platformBCredits"`
	// AdminGranted is the number of credits that admins granted themselves. They are neither purchases nor part
	// of the numbers above. Grants of deleted accounts are not counted.
	AdminGranted int64 `json:"adminGrantedCredits"`
}

// Revenue sums up all purchases.
func (r *Reports) Revenue(ctx context.Context) (Revenue, error) {
	var v Revenue
	err := r.db.QueryRow(ctx, `WITH sold AS (
			SELECT platform, credits, COUNT(*) AS n FROM purchases WHERE `+counted+` GROUP BY platform, credits),
		recent AS (
			SELECT COUNT(*) AS n, CAST(COALESCE(SUM(credits), 0) AS BIGINT) AS credits FROM purchases
			WHERE `+counted+` AND created_at >= (SELECT now_ms() - $1))
		SELECT (`+buyersSQL+`), `+sum("n")+sum("n * credits")+`(SELECT n FROM recent), (SELECT credits FROM recent), `+
		sum("CASE platform WHEN 'platform_a' THEN n END")+sum("CASE platform WHEN 'platform_a' THEN n * credits END")+
		sum("CASE platform WHEN 'platform_b' THEN n END")+sum("CASE platform WHEN 'platform_b' THEN n * credits END")+`
			CAST((SELECT COALESCE(SUM(amount), 0) FROM credit_ledger WHERE kind = 'admin') AS BIGINT) FROM sold`,
		30*dayMs).Scan(&v.PayingUsers, &v.PurchaseCount, &v.CreditsSold, &v.PurchaseCount30d, &v.CreditsSold30d,
		&v.PlatformAPurchaseCount, &v.PlatformACredits, &v.PlatformBPurchaseCount, &v.PlatformBCredits, &v.AdminGranted)
	if err != nil {
		return Revenue{}, fmt.Errorf("revenue: %w", err)
	}
	return v, nil
}

// buyersSQL counts buyers in the order of an index. With a plain COUNT(DISTINCT), PostgreSQL sorts or hashes
// all purchases, which takes several times as long.
const buyersSQL = `SELECT COUNT(*) FROM (SELECT DISTINCT buyer_id FROM (
	SELECT buyer_id FROM purchases WHERE ` + counted + ` AND buyer_id IS NOT NULL ORDER BY buyer_id) AS ordered) AS buyers`

// sum returns SQL for the sum of a nullable column, 0 without rows.
func sum(column string) string { return `CAST(COALESCE(SUM(` + column + `), 0) AS BIGINT), ` }

// DailyRevenue is the purchases of one day.
type DailyRevenue struct {
	Day              Day   `json:"date"`
	PlatformACredits int64 `json:"platformACredits"`
	PlatformBCredits int64 `json:"platformBCredits"`
	Purchases        int64 `json:"purchaseCount"`
}

// DailyRevenue returns the purchases of every day of the range.
func (r *Reports) DailyRevenue(ctx context.Context, span Range) ([]DailyRevenue, error) {
	return byDay(ctx, r.db, span, "revenue", func(d *DailyRevenue) (*Day, []any) {
		return &d.Day, []any{&d.PlatformACredits, &d.PlatformBCredits, &d.Purchases}
	}, `SELECT created_at / 86400000,
			CAST(SUM(CASE WHEN platform = 'platform_a' THEN credits ELSE 0 END) AS BIGINT),
			CAST(SUM(CASE WHEN platform = 'platform_b' THEN credits ELSE 0 END) AS BIGINT), COUNT(*)
		FROM purchases WHERE created_at >= $1 AND created_at < $2 AND `+counted+`
		GROUP BY created_at / 86400000`)
}
