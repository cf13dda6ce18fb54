import Foundation

/// An unsuccessful answer, or none at all (status 0).
public struct CutroomError: Error, Sendable {
    public let status: Int
    /// The machine code, or an English sentence where the API has no code.
    public let code: String
    public let detail: String?
    /// The path of the field that a sentence is about, such as `segments[1].speedScale`.
    public let field: String?
    /// The credits that `insufficient_credits` needs, and those that the account has.
    public let required: Int?
    public let balance: Int?
    /// What the app should do next.
    public let next: Next
    /// Seconds after which the same request may succeed.
    public let retryAfterSec: Double?
    /// The id by which support finds the request.
    public let requestId: String?

    init(status: Int, body: ErrorBody? = nil, retryAfterSec: Double? = nil, requestId: String? = nil) {
        self.status = status
        code = body?.error ?? ""
        detail = body?.detail
        field = body?.field
        required = body?.required
        balance = body?.balance
        next = Self.next(status: status, code: code, field: field ?? "")
        self.retryAfterSec = retryAfterSec
        self.requestId = requestId
    }

    /// The server or the object store did not answer, or its answer was lost.
    static func noAnswer(_ sentence: String = "") -> CutroomError {
        CutroomError(status: 0, body: ErrorBody(error: sentence))
    }

    /// The answer to a request of a user who is no longer signed in.
    static var signedOut: CutroomError { CutroomError(status: 401, body: ErrorBody(error: "unauthorized")) }

    private static func next(status: Int, code: String, field: String) -> Next {
        if let known = Contract.next[code] { return known }
        if status == 401 { return .signIn }
        if status == 404 && field.lowercased().hasSuffix("assetkey") { return .uploadAgain }
        return status == 0 || status == 429 || status >= 500 ? .again : .fix
    }
}

extension CutroomError: LocalizedError {
    public var errorDescription: String? {
        if !code.isEmpty { return code }
        return status == 0 ? "the server does not answer" : "the server answered \(status)"
    }
}

/// A job that ended in FAILED. The credits of a separation have been refunded.
public struct JobFailed: Error, Sendable {
    public let jobId: String
    /// One of `JobErrorCode`; `internal` if the server gave none.
    public let code: String
    /// A sentence for the user.
    public let sentence: String
    /// The path of the field to blame, such as `segments[1].sourceAssetKey`, if the server knows one.
    public let field: String?
}

extension JobFailed: LocalizedError {
    public var errorDescription: String? { sentence }
}
